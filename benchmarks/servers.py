"""What the benchmarks share: servers of their own, a fresh ledger, a fresh topic, the job."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.spark_submit import job, spark_environment

from tally.config.loading import load_settings
from tally.config.servers import MySQLSettings
from tally.config.settings import Settings
from tally.context import Context, open_context
from tally.counting.plan import plan_batch
from tally.kafka.client import Kafka
from tally.maintenance.migrate import migrate
from tally.mysql.transactions import Database
from tally.spark.driver_log import JAVA_OPTIONS
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[1]
PARTITIONS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """The servers of the benchmarks, with one new topic."""

    stack: Stack
    """The servers."""
    config: Path
    """The configuration file with their addresses."""
    settings: Settings
    """The settings from that file."""
    topic: str
    """The topic that every pipeline reads, or the first of several topics."""

    def plan(self, pipeline: str) -> int:
        """Plan a batch and return its id; there must be something new."""
        return plan(self.context(), pipeline)

    def context(self, spark: "SparkSession | None" = None) -> Context:
        """What the steps of a pipeline need.

        Args:
            spark: Where batches are counted; a session of their own when None.
        """
        lend = None if spark is None else lambda: nullcontext(spark)
        return open_context(self.settings, open_session=lend)

    def job(self, batch_id: int, jvm_flags: str = "") -> list[str]:
        """The command line of the Spark entry point for a batch."""
        conf = {"spark.log.level": "ERROR", JAVA_OPTIONS: jvm_flags}
        return job(self.stack, batch_id, conf=conf)

    def environment(self) -> dict[str, str]:
        """The environment of the Spark entry point."""
        return spark_environment(TALLY_CONFIG=str(self.config))


def plan(ctx: Context, pipeline: str) -> int:
    """Plan a batch and return its id; there must be something new."""
    batch = plan_batch(ctx, pipeline).batch
    if batch is None:
        raise RuntimeError(f"{pipeline} has nothing to count")
    return batch.batch_id


@contextmanager
def bench(
    pipelines: Sequence[str],
    keys: str = "",
    *,
    partitions: int = PARTITIONS,
    parts: Sequence[Part] = (Part.KAFKA, Part.MYSQL),
) -> Iterator[Bench]:
    """Start the servers, with pipelines that all read one new topic, each into its own table.

    Args:
        pipelines: Their names.
        keys: Further keys of each, as TOML.
        partitions: How many the topic has.
        parts: The servers; where Spark's is one of them, the settings name it.
    """
    topic = f"{pipelines[0]}-{time.time_ns()}"
    with serving(
        dict.fromkeys(pipelines, f'topics = ["{topic}"]\n{keys}'), {topic: partitions}, parts
    ) as servers:
        yield servers


@contextmanager
def serving(
    pipelines: Mapping[str, str],
    topics: Mapping[str, int],
    parts: Sequence[Part] = (Part.KAFKA, Part.MYSQL),
) -> Iterator[Bench]:
    """Start the servers, drop what an earlier run left in the ledger, and create the topics.

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
        overlay = stack.overlay.read_text(encoding="utf-8")
        config.write_text("\n".join([overlay, *tables]), encoding="utf-8")
        settings = load_settings(config)
        with Database(settings=settings.mysql).transaction() as tx:
            tx.execute("drop database if exists tally")
            tx.execute("create database tally")
        migrate(Database(settings=settings.mysql), settings)
        for topic, partitions in topics.items():
            Kafka(settings.kafka).create_topic(topic, partitions)
        yield Bench(stack=stack, config=config, settings=settings, topic=next(iter(topics)))


def login(servers: Bench) -> dict[str, Any]:
    """How a peer logs in to MySQL."""
    return mysql_login(servers.settings.mysql)


def mysql_login(mysql: MySQLSettings) -> dict[str, Any]:
    """How a program logs in to a server of MySQL."""
    return {
        "host": mysql.host,
        "port": mysql.port,
        "user": mysql.user,
        "password": mysql.password.get_secret_value(),
        "database": mysql.database,
    }


def say(message: str) -> None:
    """Print a line at once."""
    print(message, flush=True)
