"""What parsing a line costs, per line format, compared with only counting the records.

The records lie in Spark's memory, all at a counted level, so neither Kafka nor a disk plays a
part: in a real batch, where reading takes most of the time, the share of the line format is
smaller. Each figure is the best of several passes, in nanoseconds per record and core::

    python benchmarks/line_formats.py [--records 1000000] [--passes 5] [--cores 2] [FORMAT ...]

With ``--each`` also what it would cost to judge each record by itself, instead of asking calendar
and clock once for each key of a time.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.aggregates.aggregate import Aggregate
from tally.lines.format import LineFormat
from tally.lines.parsing import CATALOGUE
from tally.lines.time_rule import TimeRule, with_year
from tally.spark.grouping import Grouping
from tally.spark.line_columns import LineReader


def main() -> None:
    """Measure and print a table."""
    arguments = _arguments()
    session = (
        SparkSession.builder.master(f"local[{arguments.cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(arguments.cores))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    print(f"{arguments.records} records, {arguments.cores} cores, best of {arguments.passes}")
    more = " each by itself |" if arguments.each else ""
    print(f"| format | bytes | count only | counted | added | ratio |{more}")
    print(f"|---|---:|---:|---:|---:|---:|{'---:|' if more else ''}")
    names = arguments.formats or list(CATALOGUE)
    warm_up = _records(session, CATALOGUE[names[0]], arguments.records, arguments.cores)
    _measure(warm_up, CATALOGUE[names[0]], arguments.passes, each=arguments.each)
    warm_up.unpersist()
    for name in names:
        line_format = CATALOGUE[name]
        records = _records(session, line_format, arguments.records, arguments.cores)
        bare, counted, *each = _measure(records, line_format, arguments.passes, each=arguments.each)
        scale = 1e9 * arguments.cores / arguments.records
        print(
            f"| {name} | {len(line_format.example) + 9} | {bare * scale:.0f} ns "
            f"| {counted * scale:.0f} ns | {(counted - bare) * scale:.0f} ns "
            f"| {counted / bare:.2f} |" + "".join(f" {took * scale:.0f} ns |" for took in each),
            flush=True,
        )
        records.unpersist()
    session.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", choices=[[], *CATALOGUE])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--each", action="store_true")
    return parser.parse_args()


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
    )
    frame = frame.cache()
    frame.count()
    return frame


def _measure(
    records: DataFrame, line_format: LineFormat, passes: int, *, each: bool
) -> list[float]:
    """Seconds for counting only and for counting by minute; in turns, so noise affects all.

    With ``each`` also for judging each record by itself.
    """
    for row in _counted(records, line_format).collect():
        if row.minute is None or row.malformed:
            raise SystemExit(f"{line_format.name}: the example was not counted: {row}")
    _bare(records).collect()
    counted = [partial(_counted, line_format=line_format, each=e) for e in sorted({False, each})]
    ways: list[Callable[[DataFrame], DataFrame]] = [_bare, *counted]
    # A frame that is collected again reads its shuffle's files again, and no record.
    times = [[_seconds(way(records)) for way in ways] for _ in range(passes)]
    return [min(of_way) for of_way in zip(*times, strict=True)]


def _bare(records: DataFrame) -> DataFrame:
    return records.groupBy("partition").agg(
        F.count("*"), F.count("value"), F.min("offset"), F.max("offset")
    )


def _counted(records: DataFrame, line_format: LineFormat, *, each: bool = False) -> DataFrame:
    reader = LineReader(
        line_format=line_format,
        levels=[_level_of_example(line_format)] if line_format.has_level else [],
        rule=with_year(line_format, TimeRule(from_record=not line_format.has_time)),
        each=each,
    )
    nothing = Aggregate(labels=(), columns=(), label_chars=0, has_bytes=False)
    return Grouping(reader=reader, aggregate=nothing, topic="t").counts(records)


def _level_of_example(line_format: LineFormat) -> str:
    if line_format.is_fixed:
        return line_format.example.split()[2]
    if line_format.is_json:
        return str(json.loads(line_format.example)["level"])
    found = line_format.parsed_pattern.python.match(line_format.example)
    if found is None:
        raise SystemExit(f"{line_format.name}: the pattern does not match the example")
    return line_format.level_names.get(found["level"], found["level"])


def _seconds(frame: DataFrame) -> float:
    begun = time.perf_counter()
    frame.collect()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
