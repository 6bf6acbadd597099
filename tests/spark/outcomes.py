"""What Spark makes of records, beside what the oracle makes of them."""

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tally.lines.format import FIXED_LAYOUT, LineFormat
from tally.lines.time_rule import WALL_CLOCK, TimeRule
from tally.spark.line_columns import parse_line
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


def parsed(
    spark: SparkSession,
    values: Sequence[bytes | None],
    line_format: LineFormat,
    levels: set[str],
    rule: TimeRule = WALL_CLOCK,
    micros: Sequence[int] = (),
) -> DataFrame:
    rows = [
        (None if value is None else bytearray(value), at)
        for value, at in zip(values, micros or [-1] * len(values), strict=True)
    ]
    records = spark.createDataFrame(rows, "value binary, micros long")
    return parsed_columns(records, line_format, levels, rule)


def parsed_columns(
    records: DataFrame, line_format: LineFormat, levels: set[str], rule: TimeRule = WALL_CLOCK
) -> DataFrame:
    """Reason and minute of records with the columns ``value`` and ``micros``."""
    lines = parse_line(
        F.col("value"),
        line_format,
        sorted(levels),
        rule=rule,
        record_time=F.timestamp_micros(F.col("micros")),
    )
    return lines.stages.applied(records).select(
        lines.malformed_reason.alias("reason"), lines.minute.alias("minute")
    )


def outcomes(
    spark: SparkSession,
    values: Sequence[bytes | None],
    line_format: LineFormat = FIXED_LAYOUT,
    levels: set[str] | None = None,
    rule: TimeRule = WALL_CLOCK,
    micros: Sequence[int] = (),
) -> list[Outcome]:
    wanted = {"ERROR"} if levels is None else levels
    rows = parsed(spark, values, line_format, wanted, rule, micros).collect()
    return [(row.reason, row.minute) for row in rows]


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


def compiled_code(frame: DataFrame) -> str:
    """The code that Spark generates; no method of it is too long to be compiled."""
    with redirect_stdout(io.StringIO()) as explained:
        frame.explain("codegen")
    code = explained.getvalue()
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", code)]
    assert sizes
    assert max(sizes) < 8000
    return code


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
