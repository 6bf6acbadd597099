"""Reading planned ranges from Kafka with Spark and counting what they hold.

One pass over the data; a second one, over the part that holds malformed records, only where there
are any. Built-in DataFrame expressions only: no line passes through Python.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings
from tally.errors import DataLossError, MalformedFloodError, ReadError, RecordsMissingError
from tally.model import (
    EMPTY_TOTALS,
    Contribution,
    DeadLetter,
    OffsetRange,
    SegmentTotals,
    TopicPartition,
    describe_ranges,
)
from tally.spark.line_columns import parse_line
from tally.spark.session import reader_options, spark_errors
from tally.spark.spool import Spool

# The connector's own words when it cannot serve an offset; it has no error class for it.
_LOSS_WORDS: Final = ("KAFKA_DATA_LOSS", "OffsetOutOfRange", "data may have been lost")

# Where gRPC says in a sentence what went wrong between here and a Connect server.
_GRPC_DETAILS: Final = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)

# The driver's JVM holds the dead letters of one Spark task at a time: about so many bytes, were
# they spread evenly over the offsets.
_DEAD_LETTER_BYTES_PER_TASK: Final = 32 * 1024 * 1024

# And the groups of one Spark task: so many at most.
_GROUPS_PER_TASK: Final = 100_000
_PARTS: Final = "spark.sql.shuffle.partitions"


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What was found in some ranges."""

    totals: dict[TopicPartition, SegmentTotals]
    """For every range asked for."""
    contributions: Spool[Contribution]
    """Per partition and minute."""
    dead_letters: Spool[DeadLetter]
    """Malformed records."""


@contextmanager
def count_ranges(
    spark: SparkSession,
    kafka: KafkaSettings,
    pipeline: Pipeline,
    ranges: Sequence[OffsetRange],
    *,
    may_miss: Collection[TopicPartition] = (),
    only_count: bool = False,
) -> Iterator[Counts]:
    """Read the ranges, count them, and check that all of them was read.

    Args:
        spark: A session with the Kafka connector.
        kafka: How the executors reach Kafka.
        pipeline: Line format, levels and reader options.
        ranges: At most one for each partition.
        may_miss: Partitions whose range may have offsets without a record, although the pipeline
            is dense: somebody has accepted it.
        only_count: Whether the checks and the dead letters are left out, for a caller who
            compares what Kafka holds now with what it held before.

    Yields:
        The counts; they are given back at the end of the ``with`` block.

    Raises:
        ReadError: Spark could not read; the same call may succeed later.
        RecordsMissingError: Offsets of a dense range hold no record.
        DataLossError: What was read is not what was asked for.
        MalformedFloodError: More records are malformed than the pipeline allows.
    """
    with Spool[Contribution]() as contributions, Spool[DeadLetter]() as dead_letters:
        _divide(spark, sum(r.offsets for r in ranges))
        tallies = {r.partition: _PartitionTally(r) for r in ranges}
        lines = _parsed(_read(spark, kafka, pipeline, ranges), pipeline, _topics(ranges))
        for row in _collect(_counted(lines), ranges):
            partition = TopicPartition(topic=row.topic, partition=row.partition)
            tallies[partition].add(row)
            if row.minute is not None:
                contributions.append(
                    Contribution(partition=partition, log_time=row.minute, log_count=row.records)
                )
        totals = {partition: tally.totals() for partition, tally in tallies.items()}
        if only_count:
            yield Counts(totals=totals, contributions=contributions, dead_letters=dead_letters)
            return
        check_totals(pipeline, ranges, totals, may_miss=may_miss)
        if malformed := [r for t in tallies.values() if (r := t.malformed_range()) is not None]:
            _collect_dead_letters(spark, kafka, pipeline, malformed, totals, dead_letters)
        yield Counts(totals=totals, contributions=contributions, dead_letters=dead_letters)


def check_totals(
    pipeline: Pipeline,
    ranges: Sequence[OffsetRange],
    totals: dict[TopicPartition, SegmentTotals],
    *,
    may_miss: Collection[TopicPartition] = (),
) -> None:
    """Raise unless what was read is what was planned.

    Raises:
        RecordsMissingError: With every dense range that is short, and what was found.
        DataLossError: Records came from outside of a range, or too many.
        MalformedFloodError: More records are malformed than the pipeline allows.
    """
    wrong = [r for r in ranges if not _lies_inside(r, totals[r.partition])]
    if wrong:
        raise DataLossError(
            f"pipeline {pipeline.name}: what was read is not what was planned: "
            + "; ".join(_found(r, totals[r.partition]) for r in wrong),
            next_step=f"tally plan {pipeline.name} looks at what Kafka still holds",
        )
    short = [
        r
        for r in ranges
        if pipeline.offsets == "dense"
        and r.partition not in may_miss
        and totals[r.partition].records != r.offsets
    ]
    if short:
        raise RecordsMissingError(
            f"pipeline {pipeline.name}: offsets without a record: "
            + "; ".join(_found(r, totals[r.partition]) for r in short)
            + '; producers with transactions or a compacted topic need offsets = "sparse"',
            ranges=short,
            next_step=f"tally losses list {pipeline.name} --open",
        )
    malformed = sum(t.malformed for t in totals.values())
    if malformed > pipeline.max_malformed_per_batch:
        records = sum(t.records for t in totals.values())
        raise MalformedFloodError(
            f"pipeline {pipeline.name}: {malformed} of {records} records are malformed, more than "
            f"max_malformed_per_batch = {pipeline.max_malformed_per_batch}",
            next_step="correct line_format, or raise max_malformed_per_batch, and run it again",
        )


def _lies_inside(r: OffsetRange, found: SegmentTotals) -> bool:
    seen = [o for o in (found.first_offset, found.last_offset) if o is not None]
    return all(r.from_offset <= o < r.until_offset for o in seen) and found.records <= r.offsets


def _found(r: OffsetRange, found: SegmentTotals) -> str:
    seen = f"offsets {found.first_offset} to {found.last_offset}" if found.records else "none"
    return f"{r}: {found.records} records of {r.offsets}, {seen}"


def _tasks(bytes_max: int) -> int:
    """Spark tasks among which so many bytes of dead letters are shared out."""
    return -(-bytes_max // _DEAD_LETTER_BYTES_PER_TASK)


def _read(
    spark: SparkSession,
    kafka: KafkaSettings,
    pipeline: Pipeline,
    ranges: Sequence[OffsetRange],
    *,
    tasks: int = 1,
) -> DataFrame:
    options = reader_options(kafka, pipeline)
    if tasks > len(ranges):
        options["minPartitions"] = str(max(tasks, int(options.get("minPartitions", 0))))
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for r in ranges:
        topic, number = r.partition.topic, r.partition.partition
        partitions.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = r.from_offset
        ends.setdefault(topic, {})[str(number)] = r.until_offset
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )


def _divide(spark: SparkSession, offsets: int) -> None:
    """Let the groups come in parts that the driver can hold, though each line had its own minute.

    Spark joins small parts again, up to the size that :data:`tally.spark.session.SESSION_DEFAULTS`
    says, so the usual batch of few minutes comes in one.
    """
    wanted = -(-offsets // _GROUPS_PER_TASK)
    if int(spark.conf.get(_PARTS) or 0) < wanted:
        spark.conf.set(_PARTS, str(wanted))


def _topics(ranges: Sequence[OffsetRange]) -> list[str]:
    return sorted({r.partition.topic for r in ranges})


def _parsed(records: DataFrame, pipeline: Pipeline, topics: list[str]) -> DataFrame:
    line = parse_line(F.col("value"), pipeline.format, pipeline.levels)
    # With one topic its name needs no place in the grouping.
    topic = F.lit(topics[0]) if len(topics) == 1 else F.col("topic")
    return records.select(
        topic.alias("topic"),
        "partition",
        "offset",
        "value",
        line.malformed_reason.alias("reason"),
        line.minute.alias("minute"),
    )


def _counted(lines: DataFrame) -> DataFrame:
    malformed = F.col("reason").isNotNull()
    offset_of_malformed: Column = F.when(malformed, F.col("offset"))
    return lines.groupBy("topic", "partition", "minute").agg(
        F.count("*").alias("records"),
        F.count("reason").alias("malformed"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min(offset_of_malformed).alias("first_malformed"),
        F.max(offset_of_malformed).alias("last_malformed"),
    )


def _collect_dead_letters(
    spark: SparkSession,
    kafka: KafkaSettings,
    pipeline: Pipeline,
    ranges: Sequence[OffsetRange],
    totals: dict[TopicPartition, SegmentTotals],
    dead_letters: Spool[DeadLetter],
) -> None:
    found_before = sum(total.malformed for total in totals.values())
    records = _read(
        spark, kafka, pipeline, ranges, tasks=_tasks(found_before * pipeline.dead_letter_max_bytes)
    )
    lines = _parsed(records, pipeline, _topics(ranges))
    malformed = lines.where(F.col("reason").isNotNull()).select(
        "topic",
        "partition",
        "offset",
        "reason",
        F.substring("value", 1, pipeline.dead_letter_max_bytes).alias("value"),
        F.octet_length("value").alias("value_bytes"),
    )
    found = dict.fromkeys(totals, 0)
    for row in _collect(malformed, ranges):
        partition = TopicPartition(topic=row.topic, partition=row.partition)
        found[partition] += 1
        dead_letters.append(
            DeadLetter(
                partition=partition,
                offset=row.offset,
                reason=row.reason,
                value=None if row.value is None else bytes(row.value),
                value_bytes=row.value_bytes,
            )
        )
    if wrong := [str(p) for p, total in totals.items() if found[p] != total.malformed]:
        raise DataLossError(
            f"pipeline {pipeline.name}: the malformed records of {', '.join(wrong)} were not all "
            "there when they were read again",
            next_step=f"tally plan {pipeline.name} looks at what Kafka still holds",
        )


def _collect(rows: DataFrame, ranges: Sequence[OffsetRange]) -> Iterator[Row]:
    """The rows, one Spark partition in memory at a time; Spark's errors as ours."""
    try:
        yield from rows.toLocalIterator()
    except spark_errors() as error:
        words = _words(error)
        cause = _first_cause(words)
        if any(sign in words for sign in _LOSS_WORDS):
            raise DataLossError(
                f"Kafka no longer serves all of {describe_ranges(ranges)}: {cause}",
                next_step="tally plan looks at what Kafka still holds",
            ) from error
        raise ReadError(
            f"Spark could not read {describe_ranges(ranges)}: {cause}", next_step="run it again"
        ) from error


def _words(error: Exception) -> str:
    """All that Spark says; a Connect server may be told to keep the causes out of the message."""
    stack = getattr(error, "getStackTrace", None)
    return f"{error}\n{(stack() if stack else None) or ''}".strip()


def _first_cause(words: str) -> str:
    causes = [line for line in words.splitlines() if line.startswith("Caused by:")]
    if not causes and (details := _GRPC_DETAILS.search(words)):
        return details.group(1)
    return (causes[-1] if causes else words.splitlines()[0] if words else "no words").strip()


class _PartitionTally:
    """Adds the minutes of one partition up."""

    def __init__(self, asked: OffsetRange) -> None:
        self._asked = asked
        self._records = self._matched = self._malformed = 0
        self._offsets: list[int] = []
        self._malformed_offsets: list[int] = []

    def add(self, row: Any) -> None:
        """Add one group of the aggregation."""
        self._records += row.records
        self._malformed += row.malformed
        if row.minute is not None:
            self._matched += row.records
        self._offsets = _extremes(self._offsets, row.first_offset, row.last_offset)
        if row.malformed:
            self._malformed_offsets = _extremes(
                self._malformed_offsets, row.first_malformed, row.last_malformed
            )

    def totals(self) -> SegmentTotals:
        """The sums so far."""
        if not self._records:
            return EMPTY_TOTALS
        return SegmentTotals(
            records=self._records,
            matched=self._matched,
            unmatched=self._records - self._matched - self._malformed,
            malformed=self._malformed,
            first_offset=self._offsets[0],
            last_offset=self._offsets[1],
        )

    def malformed_range(self) -> OffsetRange | None:
        """The smallest range that holds all malformed records; None without any."""
        if not self._malformed_offsets:
            return None
        first, last = self._malformed_offsets
        return OffsetRange(
            partition=self._asked.partition, from_offset=first, until_offset=last + 1
        )


def _extremes(so_far: list[int], first: int, last: int) -> list[int]:
    return [min([*so_far, first]), max([*so_far, last])]
