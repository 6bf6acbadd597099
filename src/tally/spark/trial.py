"""Trying a line format on a few records, with the expressions that count."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, zip_longest
from typing import Final

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import BinaryType, StructField, StructType, TimestampType

from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings
from tally.lines.format import LineFormat
from tally.lines.time_rule import TimeRule
from tally.model import OffsetRange
from tally.spark.line_columns import LineReader, Selection
from tally.spark.reading import read_errors, read_ranges

FIELD_CHARS: Final = 64
"""Code points that are shown of a field."""

_WHOLE_STAGE: Final = "spark.sql.codegen.wholeStage"
_FACTORY: Final = "spark.sql.codegen.factoryMode"

_SCHEMA: Final = StructType(
    [StructField("value", BinaryType()), StructField("timestamp", TimestampType())]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLine:
    """A record, or a line of a file."""

    value: bytes | None
    """Its bytes; None for a record without a value."""
    timestamp: datetime
    """Kafka's timestamp of the record; with its zone, or naive in UTC."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadLine:
    """What a format makes of a line."""

    reason: str | None
    """Why it is malformed (:class:`tally.lines.format.MalformedReason`); None when it is not."""
    minute: str | None
    """Its minute; None when it is malformed."""
    fields: tuple[str, ...]
    """Its fields, in the order of the format's."""


def sample(
    session: SparkSession,
    kafka: KafkaSettings,
    topic: str,
    ranges: Sequence[OffsetRange],
    *,
    bytes_max: int,
) -> list[SampleLine]:
    """The records of some ranges of a topic, of large ones the newest.

    Args:
        session: A session with the Kafka connector.
        kafka: How the executors reach Kafka.
        topic: The topic.
        ranges: One for each partition.
        bytes_max: How large all values may be together.

    Raises:
        TallyError: As :func:`tally.spark.reading.read_errors`.
    """
    # Few records at once: nobody has said yet how large they are.
    reader = {"kafka.max.poll.records": "20"}
    pipeline = Pipeline.model_validate({"name": "trial", "topics": [topic], "reader": reader})
    size = F.coalesce(F.length("value"), F.lit(0)).alias("size")
    with read_errors(ranges):
        sizes = read_ranges(session, kafka, pipeline, ranges).select("partition", "offset", size)
        fitting = newest_within(sizes.collect(), ranges, bytes_max)
        if not fitting:
            return []
        rows = (
            read_ranges(session, kafka, pipeline, fitting)
            .select("value", "timestamp")
            .orderBy("partition", "offset")
            .collect()
        )
    return [
        SampleLine(value=None if r.value is None else bytes(r.value), timestamp=r.timestamp)
        for r in rows
    ]


def newest_within(
    sizes: Sequence[Row], ranges: Sequence[OffsetRange], bytes_max: int
) -> list[OffsetRange]:
    """The end of each range, all of about as many records, that are not too large together."""
    newest: defaultdict[int, list[Row]] = defaultdict(list)
    for row in sorted(sizes, key=lambda row: row.offset, reverse=True):
        newest[row.partition].append(row)
    in_turn = chain.from_iterable(zip_longest(*newest.values()))
    first: dict[int, int] = {}
    ended = set()
    for row in in_turn:
        if row is None or row.partition in ended:
            continue
        if row.size > bytes_max:
            ended.add(row.partition)
            continue
        bytes_max -= row.size
        first[row.partition] = row.offset
    return [
        replace(r, from_offset=first[r.partition.partition])
        for r in ranges
        if r.partition.partition in first
    ]


def try_format(
    session: SparkSession, lines: Sequence[SampleLine], line_format: LineFormat, rule: TimeRule
) -> list[ReadLine]:
    """What a format makes of each line, in order; a line without a level lacks it.

    Args:
        session: Any Spark session.
        lines: The lines.
        line_format: The format.
        rule: How the minute follows; one that suits the format.
    """
    some_level = [next(iter(line_format.levels), "ERROR")] if line_format.has_level else []
    frame = session.createDataFrame([(line.value, line.timestamp) for line in lines], _SCHEMA)
    value, moment = F.col("value"), F.col("timestamp")
    labels = Selection(labels=line_format.fields, label_chars=FIELD_CHARS)
    judging = LineReader(line_format=line_format, levels=some_level, rule=rule)
    reading = LineReader(line_format=line_format, levels=(), rule=rule, selection=labels)
    judged = judging.judged(value, record_time=moment)
    read = reading.judged(value, record_time=moment)
    with read_errors(()), _interpreted(session):
        # One after the other, as the stages of both have the same names.
        reasons = judged.stages.applied(frame).select(judged.malformed_reason).collect()
        found = read.stages.applied(frame).select(read.minute, *read.labels).collect()
    return list(_read([(*reason, *of) for reason, of in zip(reasons, found, strict=True)]))


@contextmanager
def _interpreted(session: SparkSession) -> Iterator[None]:
    """Let Spark evaluate expressions without compiling them: for few lines that is faster."""
    wanted = {_WHOLE_STAGE: "false", _FACTORY: "NO_CODEGEN"}
    before = {key: session.conf.get(key) or "" for key in wanted}
    try:
        for key, value in wanted.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            session.conf.set(key, old)


def _read(rows: Sequence[tuple[str | None, ...]]) -> Iterator[ReadLine]:
    for reason, minute, *fields in rows:
        if reason is None:
            yield ReadLine(reason=None, minute=minute, fields=tuple(f or "" for f in fields))
        else:
            yield ReadLine(reason=reason, minute=None, fields=())
