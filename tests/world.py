"""One pipeline of a test's own, and the actions of a test on it from outside.

Rows are read through connections of the test's own, never through Tally's code.
"""

import dataclasses
import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pymysql
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tally.audit.audit import AuditView, audit
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.context import Context, Patience, Reader, open_context
from tally.counting.batch import run_planned
from tally.counting.outcomes import Ran
from tally.counting.plan import Planned, plan
from tally.errors import StackError, TallyError
from tally.kafka.client import Kafka
from tally.ledger.batches import find_batch
from tally.ledger.replays import Requested
from tally.model import Batch, TopicPartition
from tally.mysql.transactions import Database, Row
from tally.planning.replay_request import BoundsAsked, Request
from tally.replay.preview import Preview, preview
from tally.replay.run import request_replay
from tally.set_up.migrate import migrate, prepare
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.python_reader import PythonReader
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Value = str | bytes | None

# The clients' messages about servers that tests have killed; pytest keeps them.
log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 20
"""Seconds that one of Kafka's answers may take; less than a plan may, which is checked."""

KAFKA_S = 120
"""Seconds within which Kafka must show a change."""

STARTS_MAX = 5

LOCK_LIST_S = 0.2
"""Seconds between two reads of InnoDB's list of transactions, which it caches for 0.1 s."""


def recorded(ctx: Context, shown: Preview) -> Requested:
    """Record what a preview has shown."""
    return request_replay(
        ctx,
        shown.pipeline,
        request=shown.request,
        digest=shown.digest,
        asked=shown.asked,
        plan=shown.plan,
        reason="a test",
    )


def run_batch(ctx: Context, batch_id: int) -> Ran:
    """Count and commit one batch; raise what it has failed with."""
    outcome = run_planned(ctx, [batch_id])[batch_id]
    if isinstance(outcome, TallyError):
        raise outcome
    return outcome


@dataclass
class World:
    """A pipeline named ``name`` that reads ``topic`` and counts into the table ``name``."""

    stack: Stack
    config: Path
    name: str
    topic: str
    keys: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of each context that override the configuration's."""

    @classmethod
    def create(cls, stack: Stack, folder: Path, *, partitions: int = 2, **keys: Any) -> "World":
        """A new pipeline with a new topic; ``keys`` are further settings of the pipeline."""
        name = f"p_{secrets.token_hex(5)}"
        world = cls(stack=stack, config=folder / "tally.toml", name=name, topic=name)
        world.configure(**keys)
        prepare(world.database, world.settings)
        world.create_topic(partitions)
        return world

    @property
    def settings(self) -> Settings:
        """The configuration, read again."""
        return load_settings(self.config)

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline's configuration, read again."""
        return self.settings.pipeline(self.name)

    @property
    def database(self) -> Database:
        """The database of the ledger and the results, as the steps reach it."""
        changed: Database | None = self.changes.get("database")
        return changed or Database(settings=self.settings.mysql)

    def through(self, **changes: Any) -> "World":
        """The same pipeline with other fields of the context that its steps get.

        The test's own reads and writes are not affected.
        """
        return dataclasses.replace(self, changes={**self.changes, **changes})

    @property
    def reader(self) -> PythonReader:
        """Counts without Spark, for a test whose point is the ledger."""
        return PythonReader(kafka=self.settings.kafka)

    def context(self, counting: "SparkSession | Reader | None" = None, **changes: Any) -> Context:
        """What the steps need: real servers, and little patience.

        Args:
            counting: A Spark session that counts batches, or a reader such as :attr:`World.reader`;
                without one, a reader that is opened is an error.
            changes: Fields of the context that are to differ.
        """
        ours: dict[str, Any] = {"patience": Patience(doubt_pause_s=0.01), "database": self.database}
        if counting is not None and hasattr(counting, "count_each"):
            reader = cast("Reader", counting)
            ours["open_reader"] = lambda: nullcontext(reader)

        def lend() -> "AbstractContextManager[SparkSession]":
            assert counting is not None, "nothing was to be read"
            return nullcontext(cast("SparkSession", counting))

        context = open_context(self.settings, open_session=lend)
        return dataclasses.replace(context, **{**ours, **self.changes, **changes})

    def configure(self, **keys: Any) -> None:
        """Write the pipeline's settings; ``keys`` replace those of the same name; None: unset."""
        merged = {"topics": [self.topic], **self.keys, **keys}
        self.keys = {key: value for key, value in merged.items() if value is not None}
        make_settings(self.stack, self.config, {self.name: self.keys})

    def migrate(self, **keys: Any) -> list[str]:
        """Make the tables that the settings need; ``keys`` are settings that change before."""
        if keys:
            self.configure(**keys)
        return migrate(self.database, self.settings)

    # --- Kafka

    @cached_property
    def admin(self) -> AdminClient:
        """A client of the test's own."""
        servers = self.settings.kafka.bootstrap_servers
        return AdminClient({"bootstrap.servers": servers}, logger=log)

    def create_topic(self, partitions: int, topic: str | None = None, **config: str) -> None:
        """Create a topic and wait until Kafka serves it."""
        topic = topic or self.topic
        new = NewTopic(topic, partitions, 1, config=config)
        self.admin.create_topics([new])[topic].result(30)
        wait_until(lambda: self._partitions(topic) == partitions, KAFKA_S)

    def delete_topic(self, topic: str | None = None) -> None:
        """Delete a topic and wait until it is gone."""
        topic = topic or self.topic
        self.admin.delete_topics([topic])[topic].result(30)
        wait_until(lambda: self._partitions(topic) == 0, KAFKA_S)

    def add_partitions(self, total: int) -> None:
        """Grow the topic to so many partitions."""
        self.admin.create_partitions([NewPartitions(self.topic, total)])[self.topic].result(30)
        wait_until(lambda: self._partitions(self.topic) == total, KAFKA_S)

    def delete_records(self, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        from confluent_kafka import TopicPartition as Offset  # noqa: PLC0415

        wanted = Offset(self.topic, partition, before)
        for future in self.admin.delete_records([wanted]).values():
            future.result(30)

    def end(self, partition: int, *, read_committed: bool) -> int:
        """The last stable offset of a partition, or its high watermark."""
        snapshot = Kafka(self.settings.kafka).snapshot([self.topic], read_committed=read_committed)
        return snapshot.topics[self.topic].partitions[partition].end

    def wait_for_markers(self, partition: int = 0) -> None:
        """Wait until ended transactions no longer hold back the last stable offset."""
        stable, high = (partial(self.end, partition, read_committed=c) for c in (True, False))
        wait_until(lambda: stable() == high(), KAFKA_S)

    def produce(
        self,
        lines: Iterable[Value],
        partition: int = 0,
        *,
        topic: str | None = None,
        fields: Any = None,
        **options: Any,
    ) -> None:
        """Write lines, in records with these fields, to a partition; wait for the broker."""
        producer = self.producer(**options)
        given = {"topic": topic or self.topic, "partition": partition, **(fields or {})}
        for value in lines:
            while True:
                with suppress(BufferError):
                    producer.produce(value=value, **given)
                    break
                producer.poll(0.5)
            producer.poll(0)
        assert producer.flush(60) == 0

    def producer(self, **options: Any) -> Producer:
        """A producer of the test's own."""
        servers = self.settings.kafka.bootstrap_servers
        given = {"bootstrap.servers": servers, "message.max.bytes": 20_000_000, **options}
        return Producer(given, logger=log)

    def _partitions(self, topic: str) -> int:
        found = self.admin.list_topics(topic, timeout=10).topics.get(topic)
        return len(found.partitions) if found is not None and found.error is None else 0

    # --- the servers

    def bring_back(self, part: Part) -> None:
        """Start a server that was killed; its recovery may take long.

        Raises:
            StackError: It does not start within several start timeouts.
        """
        for _ in range(STARTS_MAX - 1):
            with suppress(StackError):
                self.stack.up([part])
                return
        self.stack.up([part])

    # --- MySQL, on connections of the test's own

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Rows of a query on a fresh connection."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run and commit a statement on a fresh connection."""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            connection.commit()

    def connect(self, **options: Any) -> "pymysql.Connection[Any]":
        """A connection as the application's user."""
        mysql = self.settings.mysql
        arguments: dict[str, Any] = {
            "ssl_disabled": True,  # a context for TLS costs more than most statements
            "host": mysql.host,
            "port": mysql.port,
            "user": mysql.user,
            "password": mysql.password.get_secret_value(),
            "database": mysql.database,
            "cursorclass": pymysql.cursors.DictCursor,
            **options,
        }
        return pymysql.connect(**arguments)

    def connect_as_root(self, **options: Any) -> "pymysql.Connection[Any]":
        """A connection as MySQL's root."""
        password = self.stack.credentials().mysql_root
        return self.connect(user="root", password=password, **options)

    def as_root(self, *statements: str) -> None:
        """Run statements as MySQL's root, in no database."""
        with closing(self.connect_as_root(database=None)) as root, root.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    @contextmanager
    def global_variable(self, name: str, value: str | int) -> Iterator[None]:
        """Set a variable of the server's for everybody who logs in, as an administrator does."""
        with closing(self.connect_as_root()) as root, root.cursor() as cursor:
            cursor.execute(f"select @@global.{name} as was")
            (row,) = cursor.fetchall()
            cursor.execute(f"set global {name} = %s", (value,))
            try:
                yield
            finally:
                cursor.execute(f"set global {name} = %s", (row["was"],))

    def waiting_statements(self) -> list[str]:
        """The statements that wait for a row lock; call it again only after ``LOCK_LIST_S``."""
        with closing(self.connect_as_root(autocommit=True)) as root, root.cursor() as cursor:
            cursor.execute(
                "select trx_query from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
            )
            return [str(row["trx_query"]) for row in cursor.fetchall()]

    # --- steps and what a test reads

    def plan(self) -> Planned:
        """Plan the pipeline's next batch."""
        return plan(self.context(), self.name)

    def planned(self, lines: Sequence[Value] = ()) -> Batch:
        """The batch that is open or newly planned, with these lines of the first partition."""
        if lines:
            self.produce(lines)
        (batch_id,) = self.plan().batch_ids
        with self.database.transaction(read_only=True) as tx:
            return find_batch(tx, batch_id)

    def ask_replay(self, asked: Request | None = None) -> Requested:
        """Record a replay, of all that was counted by default."""
        ctx = self.context()
        return recorded(ctx, preview(ctx, self.name, asked or BoundsAsked()))

    def run(self, batch_id: int, counting: "SparkSession | Reader | None" = None) -> Ran:
        """Count and commit a batch, without Spark unless a session is given."""
        return run_batch(self.context(counting or self.reader), batch_id)

    def minute(self, counting: "SparkSession | Reader | None" = None) -> Ran | None:
        """Plan and run once, without Spark unless a session is given; None: nothing was new."""
        planned = self.plan()
        return self.run(planned.batch_ids[0], counting) if planned.batches else None

    def counts(self) -> dict[str, int]:
        """The result table, as ``{"2017-07-30 14:09": 3}``."""
        rows = self.rows(
            f"select date_format(log_time, '%%Y-%%m-%%d %%H:%%i') as minute, log_count"
            f" from `{self.name}` order by log_time"
        )
        return {row["minute"]: row["log_count"] for row in rows}

    def offsets(self) -> dict[int, tuple[int, int]]:
        """Start and next offset of each partition of the current topic."""
        rows = self.rows(
            "select o.partition_id, o.start_offset, o.next_offset from partition_offset o"
            " join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s and i.topic = %s and i.state = 'current'",
            (self.name, self.topic),
        )
        return {row["partition_id"]: (row["start_offset"], row["next_offset"]) for row in rows}

    def batches(self) -> list[Row]:
        """The pipeline's batches, oldest first."""
        return self.rows("select * from batch where pipeline = %s order by batch_id", (self.name,))

    def replays(self) -> list[Row]:
        """The pipeline's replays, oldest first."""
        of_pipeline = "select * from replay where pipeline = %s order by replay_id"
        return self.rows(of_pipeline, (self.name,))

    def segments(self) -> list[Row]:
        """The pipeline's segments with their topic, oldest first."""
        return self.rows(
            "select s.*, i.topic, i.topic_id from segment s"
            " join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s order by s.segment_id",
            (self.name,),
        )

    def dead_letters(self) -> list[Row]:
        """The pipeline's dead letters, in order of partition and offset."""
        return self.rows(
            "select s.partition_id, d.record_offset, d.reason, d.value, d.value_bytes"
            " from dead_letter d join segment s using (segment_id)"
            " join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s order by s.partition_id, d.record_offset",
            (self.name,),
        )

    def audit(self) -> AuditView:
        """What the audit says."""
        return audit(self.context(), self.name)

    def partition(self, number: int) -> TopicPartition:
        """A partition of the topic."""
        return TopicPartition(topic=self.topic, partition=number)


def make_settings(stack: Stack, path: Path, pipelines: Mapping[str, Mapping[str, Any]]) -> Settings:
    """Write a configuration that leads to the stack's servers, and read it."""
    overlay = stack.layout.overlay.read_text(encoding="utf-8")
    # A busy machine may keep the broker's controller from an answer for longer than usual.
    tables = [overlay.replace("[kafka]\n", f"[kafka]\nrequest_timeout_s = {REQUEST_TIMEOUT_S}\n")]
    for name, keys in pipelines.items():
        lines = [f"{key} = {_toml(value)}" for key, value in keys.items()]
        tables.append("\n".join([f"[pipelines.{name}]", *lines]))
    path.touch(mode=0o600)
    path.write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    return load_settings(path)


def with_ledger(stack: Stack, folder: Path) -> Stack:
    """A stack, once its ledger is up to date; its configuration goes into the folder."""
    settings = make_settings(stack, folder / "tally.toml", {"first": {"topics": ["first"]}})
    migrate(Database(settings=settings.mysql), settings)
    return stack


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # Strings, numbers and booleans look the same in JSON and TOML.
    return json.dumps(value)
