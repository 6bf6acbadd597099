"""What the benchmarks share: servers of their own, a fresh ledger, topics with known lines."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.spark_submit import job, spark_environment

from benchmarks.page import say
from benchmarks.peers.store import Store
from tally.config.loading import load_settings
from tally.config.servers import MySQLSettings
from tally.config.settings import Settings
from tally.context import Context, open_context
from tally.counting import plan as planning
from tally.counting.outcomes import Ran
from tally.counting.run import run_batches
from tally.kafka.client import Kafka
from tally.mysql.transactions import Database
from tally.set_up.migrate import migrate
from tally.spark.java import JAVA_OPTIONS
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[1]
PARTITIONS = 4
LINES_PER_MINUTE = 10_000
LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR", "INFO", "INFO", "DEBUG", "INFO")
SERVICES = tuple(f"svc-{number}" for number in range(8))
BYTES = 71
_CHUNK = 10_000
_QUEUED_MAX = 500_000
_FIRST = datetime(2026, 1, 1)  # noqa: DTZ001 - the lines' own clock has no zone


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """The servers of the benchmarks, with new topics."""

    stack: Stack
    """The servers."""
    config: Path
    """The configuration file with their addresses."""
    settings: Settings
    """The settings from that file."""
    topic: str
    """The first of the topics, which is often the only one."""

    def context(self, spark: "SparkSession | None" = None) -> Context:
        """What the steps of a pipeline need.

        Args:
            spark: Where batches are counted; a session of their own when None.
        """
        lend = None if spark is None else lambda: nullcontext(spark)
        return open_context(self.settings, open_session=lend)

    def job(self, batch_id: int, jvm_flags: str) -> list[str]:
        """The command line of the Spark entry point for a batch."""
        conf = {"spark.log.level": "ERROR", JAVA_OPTIONS: jvm_flags}
        return job(self.stack, batch_id, conf=conf)

    def environment(self) -> dict[str, str]:
        """The environment of a program that counts; it and Spark's workers find these modules."""
        return spark_environment(
            TALLY_CONFIG=str(self.config), PYTHONPATH=os.pathsep.join(sys.path)
        )

    def login(self) -> dict[str, Any]:
        """How a peer logs in to MySQL."""
        return mysql_login(self.settings.mysql)


@contextmanager
def serving(
    pipelines: Mapping[str, str],
    topics: Mapping[str, int],
    parts: Sequence[Part] = (Part.KAFKA, Part.MYSQL),
) -> Iterator[Bench]:
    """Start the servers, drop what an earlier run left in the ledger, and create the topics.

    They are deleted at the end: many partitions make Kafka slow.

    Args:
        pipelines: Their keys, as TOML, by name.
        topics: Partitions by name; the first is the topic of :attr:`Bench.topic`.
        parts: The servers; where Spark's is one of them, the settings name it.
    """
    stack = Stack(project=PROJECT, home=PROJECT / ".tally" / "bench", announce=say)
    with stack.foreground(parts), TemporaryDirectory() as folder:
        config = Path(folder) / "tally.toml"
        config.touch(mode=0o600)
        tables = [f"[pipelines.{name}]\n{keys}\n" for name, keys in pipelines.items()]
        overlay = stack.layout.overlay.read_text(encoding="utf-8")
        config.write_text("\n".join([overlay, *tables]), encoding="utf-8")
        settings = load_settings(config)
        with Database(settings=settings.mysql).transaction() as tx:
            tx.execute("drop database if exists tally")
            tx.execute("create database tally")
        migrate(Database(settings=settings.mysql), settings)
        for topic, partitions in topics.items():
            Kafka(settings.kafka).create_topic(topic, partitions)
        try:
            yield Bench(stack=stack, config=config, settings=settings, topic=next(iter(topics)))
        finally:
            admin = AdminClient({"bootstrap.servers": settings.kafka.bootstrap_servers})
            for deleted in admin.delete_topics(list(topics)).values():
                deleted.result(60)


def new_topic(name: str) -> str:
    """A name that no other run uses: Kafka may still be deleting its topics."""
    return f"{name}-{time.time_ns()}"


def mysql_login(mysql: MySQLSettings) -> dict[str, Any]:
    """How a program logs in to a server of MySQL."""
    return {
        "host": mysql.host,
        "port": mysql.port,
        "user": mysql.user,
        "password": mysql.password.get_secret_value(),
        "database": mysql.database,
    }


def plan(ctx: Context, pipeline: str) -> list[int]:
    """Plan what there is, and return the ids of the batches; there must be something new."""
    batch_ids = planning.plan(ctx, pipeline).batch_ids
    if not batch_ids:
        raise RuntimeError(f"{pipeline} has nothing to count")
    return batch_ids


def count(ctx: Context, pipeline: str, lines: int) -> list[Ran]:
    """Plan, count and commit what there is; returns the outcome of each batch.

    Raises:
        RuntimeError: It is not so many lines.
    """
    ran = list(run_batches(ctx, plan(ctx, pipeline)))
    records = sum(one.total.records for one in ran)
    if records != lines:
        raise RuntimeError(f"{pipeline} has counted {records} records of {lines}")
    return ran


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a topic holds."""

    lines: int
    """All of them."""
    ends: Mapping[int, int]
    """The offset behind the last line of each partition."""
    errors: Mapping[str, int]
    """Lines of the level ERROR by minute, ``YYYY-MM-DD HH:MM``."""

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """Each partition with its first offset and the one behind its last."""
        return [(partition, 0, end) for partition, end in self.ends.items()]

    def check(self, store: Store) -> None:
        """Raise unless what was written is counted there.

        Raises:
            RuntimeError: It is not.
        """
        if store.counts() != self.errors:
            raise RuntimeError(f"{store.name} has not counted what was written")


def write_lines(
    servers: Bench, lines: int, partitions: int = PARTITIONS, *, topic: str | None = None
) -> Written:
    """Write so many lines of the fixed layout to a topic, the bench's first by default."""
    errors, ends = Counter[str](), dict.fromkeys(range(partitions), 0)
    producer = Producer(
        {
            "bootstrap.servers": servers.settings.kafka.bootstrap_servers,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    chunk = max(1, min(_CHUNK, lines // partitions))
    for number, first in enumerate(range(0, lines, chunk)):
        minute = _FIRST + timedelta(minutes=first // LINES_PER_MINUTE)
        values = [_line(minute, n) for n in range(first, min(first + chunk, lines))]
        errors[f"{minute:%Y-%m-%d %H:%M}"] += sum(b" ERROR " in v[:26] for v in values)
        messages, partition = [{"value": value} for value in values], number % partitions
        queued = producer.produce_batch(topic or servers.topic, messages, partition=partition)
        if queued != len(values):
            raise RuntimeError("the producer's queue is full")
        ends[partition] += queued
        while len(producer) > _QUEUED_MAX:
            producer.poll(0.1)
    if left := producer.flush(120):
        raise RuntimeError(f"{left} lines have not arrived")
    return Written(lines=lines, ends=ends, errors={m: n for m, n in errors.items() if n})


def _line(minute: datetime, number: int) -> bytes:
    level = LEVELS[number % len(LEVELS)]
    service = SERVICES[number // 7 % len(SERVICES)]
    text = f"{minute:%Y-%m-%d %H:%M}:{number % 60:02} {level} [{service}] request {number:012}"
    return text.ljust(BYTES).encode()
