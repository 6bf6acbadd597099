"""What parsing a line costs, per line format, compared with only counting the records.

Usage: ``.tally/venv/bin/python -m benchmarks.line_formats [--records 1000000] [--passes 5]
[--cores 2] [--formats FORMAT ...]``

The records lie in Spark's memory, all at a counted level, so neither Kafka nor a disk plays a
part: in a real batch, where reading takes most of the time, the share of the line format is
smaller. Each figure is the best of several passes, in nanoseconds per record and core. The last
column is what it would cost to judge each record by itself, instead of asking calendar and clock
once for each key of a time.
"""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from benchmarks.contest import timed
from benchmarks.page import Table, command
from tally.config.pipeline import Pipeline
from tally.lines.format import LineFormat
from tally.lines.parsing import CATALOGUE
from tally.lines.time_rule import FROM_RECORD
from tally.spark.grouping import Grouping


def measure(
    records: int = 1_000_000,
    passes: int = 5,
    cores: int = 2,
    formats: tuple[str, ...] = tuple(CATALOGUE),
) -> Iterator[Table]:
    """Measure each format."""
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(cores))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    rows = {}
    for name in (formats[0], *formats):  # the first one warms everything
        line_format = CATALOGUE[name]
        frame = _records(session, line_format, records, cores)
        taken = [s * 1e9 * cores / records for s in _measure(frame, line_format, passes)]
        bare, counted, each = taken
        size = len(line_format.example) + 9
        costs = [f"{ns:,.0f} ns" for ns in (bare, counted, counted - bare, each)]
        rows[name] = [f"`{name}`", f"{size}", *costs]
        frame.unpersist()
    session.stop()
    yield Table(
        headers=["format", "bytes", "count only", "counted by minute", "added", "each by itself"],
        rows=list(rows.values()),
    )


def _records(session: SparkSession, line_format: LineFormat, records: int, cores: int) -> DataFrame:
    """The format's example with a running number at its end, in memory."""
    start, end = line_format.example, ""
    if line_format.is_json:
        start, end = line_format.example.removesuffix('"}'), '"}'
    number = F.format_string(" %08d", F.col("id"))
    value = F.concat(F.lit(start), number, F.lit(end)).cast("binary")
    moment = F.lit("2017-07-31 00:00:00").cast("timestamp").alias("timestamp")
    frame = session.range(0, records, 1, cores).select(
        value.alias("value"),
        moment,
        F.spark_partition_id().alias("partition"),
        F.col("id").alias("offset"),
        F.lit(None).cast("binary").alias("key"),
        F.lit(0).cast("long").alias("from_offset"),
    )
    frame = frame.cache()
    frame.count()
    return frame


def _measure(records: DataFrame, line_format: LineFormat, passes: int) -> list[float]:
    """Seconds for counting only, for counting by minute, and for judging each record by itself.

    In turns, so noise affects all.
    """
    for row in _counted(records, line_format).collect():
        if row.minute is None or row.malformed:
            raise SystemExit(f"{line_format.name}: the example was not counted: {row}")
    _bare(records).collect()
    # A frame that is collected again reads its shuffle's files again, and no record.
    ways: list[Callable[[], DataFrame]] = [
        partial(_bare, records),
        partial(_counted, records, line_format),
        partial(_counted, records, line_format, each=True),
    ]
    times = [[timed(way().collect)() for way in ways] for _ in range(passes)]
    return [min(of_way) for of_way in zip(*times, strict=True)]


def _bare(records: DataFrame) -> DataFrame:
    return records.groupBy("partition").agg(
        F.count("*"), F.count("value"), F.min("offset"), F.max("offset")
    )


def _counted(records: DataFrame, line_format: LineFormat, *, each: bool = False) -> DataFrame:
    pipeline = Pipeline.model_construct(
        line_format=line_format.name,
        levels=[_level_of_example(line_format)] if line_format.has_level else [],
        time="line" if line_format.has_time else "record",
        assume_year=FROM_RECORD if line_format.lacks_year else None,
    )
    return Grouping(pipeline=pipeline, topic="t", each=each).counts(records)


def _level_of_example(line_format: LineFormat) -> str:
    if line_format.is_fixed:
        return line_format.example.split()[2]
    if line_format.is_json:
        return str(json.loads(line_format.example)["level"])
    found = line_format.parsed_pattern.python.match(line_format.example)
    if found is None:
        raise SystemExit(f"{line_format.name}: the pattern does not match the example")
    return line_format.level_names.get(found["level"], found["level"])


if __name__ == "__main__":
    sys.exit(command(measure))
