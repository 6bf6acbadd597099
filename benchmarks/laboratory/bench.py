"""What a method works with: a topic with known lines, Spark, and a store.

Each line has a minute of its own, so each is known by its count.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.laboratory.faults import Fault, point
from benchmarks.peers.store import Store
from tally.config.loading import load_settings
from tally.model import OffsetRange, TopicPartition
from tally.spark.reading import read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3
PER_BATCH = 200
"""Lines that a batch takes from each partition."""
PER_SMALLER_BATCH = 130
LINES = 4 * PARTITIONS * PER_BATCH
_FIRST = datetime(2000, 1, 1)  # noqa: DTZ001 - the lines' own clock has no zone
END: Final = LINES // PARTITIONS
"""The offset behind the last line of each partition."""
START: Final = dict.fromkeys(range(PARTITIONS), 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What a method works with."""

    spark: "SparkSession"
    """A session with the Kafka connector."""
    config: Path
    """Tally's configuration, also of the other methods' brokers."""
    pipeline: str
    """One of its pipelines."""
    topic: str
    """The topic."""
    store: Store
    """The tables of the methods that are not Tally's."""

    def read(self, starts: Mapping[int, int]) -> "tuple[DataFrame, dict[int, int]]":
        """The next lines of each partition, a Spark task for each, and where they end."""
        settings = load_settings(self.config)
        pipeline = settings.pipeline(self.pipeline)
        per_batch = pipeline.max_records_per_partition
        ends = {p: min(END, start + per_batch) for p, start in starts.items()}
        ranges = [
            OffsetRange(
                partition=TopicPartition(topic=self.topic, partition=p),
                from_offset=start,
                until_offset=ends[p],
            )
            for p, start in starts.items()
            if start < ends[p]
        ]
        frame = read_ranges(self.spark, settings.kafka, pipeline, ranges, tasks=None)
        return by_minute(then_fail(frame)), ends


def by_minute(frame: "DataFrame") -> "DataFrame":
    """The lines as ``partition``, ``offset`` and ``log_time``."""
    log_time = F.substring(F.col("value").cast("string"), 1, 16)
    return frame.select("partition", "offset", log_time.alias("log_time"))


def then_fail(frame: "DataFrame") -> "DataFrame":
    """The same records; behind the last one of a task the task may be killed."""
    return frame.mapInArrow(_pass_on, frame.schema)


def _pass_on(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches
    point(Fault.TASK_READ, Fault.EXECUTOR_READ, Fault.COPY_READ)


def counts_of(frame: "DataFrame") -> dict[str, int]:
    """Lines by minute, brought to the driver."""
    return dict(Counter(row["log_time"] for row in frame.collect()))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the lines."""

    lost: int
    """Lines that are not counted."""
    doubled: int
    """Times that a line is counted besides the first one."""

    def __str__(self) -> str:
        both = ((self.lost, "lost"), (self.doubled, "doubled"))
        return ", ".join(f"{n:,} {what}" for n, what in both if n) or "exact"


def minutes() -> list[str]:
    """The minute of each line, ``YYYY-MM-DD HH:MM``."""
    return [f"{_FIRST + timedelta(minutes=n):%Y-%m-%d %H:%M}" for n in range(LINES)]


def write(bootstrap_servers: str, topic: str) -> None:
    """Write all lines, in turns to each partition, so that a batch has some of all."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number, minute in enumerate(minutes()):
        value = f"{minute}:00 ERROR line {number}".encode()
        producer.produce(topic, value, partition=number % PARTITIONS)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} lines have not arrived")


def judge(counts: Mapping[str, int]) -> Verdict:
    """Compare counts by minute with the lines that were written.

    Raises:
        ValueError: A minute is counted that no line has.
    """
    expected = set(minutes())
    if invented := sorted(counts.keys() - expected):
        raise ValueError(f"minutes of no line: {invented[:3]}")
    return Verdict(
        lost=sum(not counts.get(minute) for minute in expected),
        doubled=sum(max(0, count - 1) for count in counts.values()),
    )
