"""What a method works with: Spark, the topic, and the next lines of each partition."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.laboratory.faults import Fault, point
from benchmarks.laboratory.lines import LINES, PARTITIONS
from benchmarks.laboratory.store import Store
from tally.config.loading import load_settings
from tally.model import OffsetRange, TopicPartition
from tally.spark.reading import read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    log_time = F.concat(F.substring(F.col("value").cast("string"), 1, 16), F.lit(":00"))
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
