"""What Spark makes of records, beside what the oracle makes of them."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tally.aggregates.aggregate import Aggregate
from tally.lines.format import FIXED_LAYOUT, LineFormat
from tally.lines.time_rule import WALL_CLOCK, TimeRule
from tally.spark.grouping import Grouping
from tally.spark.line_columns import LineReader
from tests.spark.oracle import Outcome, expected

SEED = 20170730
TIMES = (
    "2017-07-30 14:09:08",
    "2016-02-29 00:00:00",
    "2017-02-29 12:00:00",
    "2000-02-29 12:00:00",
    "1900-02-29 12:00:00",
    "2017-02-30 12:00:00",
    "2017-04-31 12:00:00",
    "2017-12-31 23:59:59",
    "2017-13-01 12:00:00",
    "2017-00-10 12:00:00",
    "2017-01-00 12:00:00",
    "2017-01-32 12:00:00",
    "2017-01-01 24:00:00",
    "2017-01-01 23:60:00",
    "2016-12-31 23:59:60",
    "2016-12-31 23:59:61",
    "0000-01-01 00:00:00",
    "0000-02-29 00:00:00",
    "0000-13-01 00:00:00",
    "0001-01-01 00:00:00",
    "0999-12-31 23:59:59",
    "1000-01-01 00:00:00",
    "1582-10-10 12:00:00",
    "2026-03-29 02:30:00",
    "2026-10-25 02:30:00",
    "2999-07-30 14:09:08",
    "9999-12-31 23:59:59",
)


def kafka_records(
    spark: SparkSession, values: Sequence[bytes | None], micros: Sequence[int] = ()
) -> DataFrame:
    """A frame like that of Spark's Kafka source; each record has a partition of its own."""
    rows = [
        (None if value is None else bytearray(value), number, at)
        for number, (value, at) in enumerate(zip(values, micros or [-1] * len(values), strict=True))
    ]
    frame = spark.createDataFrame(rows, "value binary, partition int, micros long")
    return frame.select(
        F.lit("t").alias("topic"),
        "partition",
        (F.col("partition") * 10).cast("long").alias("offset"),
        "value",
        F.lit(None).cast("binary").alias("key"),
        F.timestamp_micros("micros").alias("timestamp"),
    )


def read_records(
    spark: SparkSession,
    values: Sequence[bytes | None],
    reader: LineReader,
    micros: Sequence[int] = (),
) -> list[tuple[Any, ...]]:
    """Reason, minute, whether it begins no line, and labels of each record.

    Each is read twice: judged by itself, and grouped and counted as in a batch. Both must agree.
    """
    records = kafka_records(spark, values, micros)
    line = reader.judged(F.col("value"), record_time=F.col("timestamp"))
    labels = [column.alias(f"label_{n}") for n, column in enumerate(line.labels)]
    judged = line.stages.applied(records).select(
        line.malformed_reason.alias("reason"),
        line.minute.alias("minute"),
        line.continues.alias("continues"),
        *labels,
    )
    found = [tuple(row) for row in judged.collect()]
    counted = {row.partition: row for row in grouping(reader).counts(records).collect()}
    assert len(counted) == len(found)
    for number, (reason, minute, continues, *labelled) in enumerate(found):
        row = counted[number]
        malformed = reason is not None
        place = number * 10 if malformed else None
        assert row.minute == minute, (values[number], row.minute, minute)
        assert [row[name] for name in grouping(reader).aggregate.label_columns] == labelled
        assert (row.records, row.malformed, row.continuations) == (1, malformed, continues), (
            values[number],
            reason,
        )
        assert (row.first_offset, row.last_offset) == (number * 10, number * 10)
        assert (row.first_malformed, row.last_malformed) == (place, place)
    return found


def grouping(reader: LineReader) -> Grouping:
    """How a batch would group the records that a reader understands."""
    labels = tuple(reader.selection.labels)
    aggregate = Aggregate(
        labels=labels, columns=labels, label_chars=reader.selection.label_chars, has_bytes=False
    )
    return Grouping(reader=reader, aggregate=aggregate, topic="t")


def outcomes(
    spark: SparkSession,
    values: Sequence[bytes | None],
    line_format: LineFormat = FIXED_LAYOUT,
    levels: set[str] | None = None,
    rule: TimeRule = WALL_CLOCK,
    micros: Sequence[int] = (),
) -> list[Outcome]:
    """Reason and minute of each record."""
    wanted = {"ERROR"} if levels is None else levels
    reader = LineReader(line_format=line_format, levels=sorted(wanted), rule=rule)
    return [(reason, minute) for reason, minute, _ in read_records(spark, values, reader, micros)]


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {name: "spark.sql." + name.replace("__", ".") for name in values}
    before = {name: spark.conf.get(full) for name, full in names.items()}
    try:
        for name, full in names.items():
            spark.conf.set(full, values[name])
        yield
    finally:
        for name, full in names.items():
            spark.conf.set(full, str(before[name]))


def compiled_stages(frame: DataFrame) -> list[str]:
    """The code that Spark generates, that which reads records first.

    No method of it is too long to be compiled.
    """
    with redirect_stdout(io.StringIO()) as explained:
        frame.explain("codegen")
    code = explained.getvalue()
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", code)]
    assert sizes
    assert max(sizes) < 8000
    stages = re.split(r"^== Subtree \d+ / \d+ ", code, flags=re.MULTILINE)[1:]
    return sorted(stages, key=lambda stage: "LocalTableScan" not in stage and "Scan" not in stage)


def assert_as_expected(
    spark: SparkSession,
    lines: Sequence[bytes | None],
    line_format: LineFormat,
    levels: set[str],
    reasons: set[str],
    rule: TimeRule = WALL_CLOCK,
    micros: Sequence[int] = (),
) -> None:
    """Spark and the oracle agree, and every outcome that can happen did happen."""
    stamps = micros or [-1] * len(lines)
    wanted = [
        expected(line, line_format, levels, rule, at)
        for line, at in zip(lines, stamps, strict=True)
    ]
    found = outcomes(spark, lines, line_format, levels, rule, stamps)
    wrong = [
        (line, f"expected {w}, found {f}")
        for line, w, f in zip(lines, wanted, found, strict=True)
        if w != f
    ]
    assert wrong == [], f"seed {SEED}: {wrong[:5]}"
    seen = Counter(reason or ("counted" if minute else "not counted") for reason, minute in wanted)
    assert reasons <= set(seen), seen
    assert seen["counted"] > len(lines) / 100, seen
