"""What it gains to divide a partition's range among several Spark tasks, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.task_size [--lines 4000000] [--rounds 5]``

Counts the same number of lines out of one partition, and spread over all, with tasks of different
sizes in turns, and prints medians as multiples of those with a task for each partition.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.contest import medians
from benchmarks.reader_options import PIPELINE, count, evenly, produce
from benchmarks.servers import PARTITIONS, Bench, bench, say
from tally.spark.counting import SparkReader
from tally.spark.session import spark_session

WHOLE = 10**12
SIZES = (WHOLE, 2_000_000, 1_000_000, 500_000, 250_000)


def main() -> int:
    """Run it once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    one, spread = {0: arguments.lines}, evenly(arguments.lines)
    with bench([PIPELINE]) as servers, spark_session(servers.settings.spark, PIPELINE) as spark:
        produce(servers, spread)
        of_spread = _compare(servers, spark, spread, arguments.rounds)
        produce(servers, {0: arguments.lines - spread[0]})
        of_one = _compare(servers, spark, one, arguments.rounds)
        heap = _heap_in_use_mb(spark)
    say(f"{arguments.lines:,} lines, median of {arguments.rounds} rounds")
    say(f"| offsets per task | 1 partition, s | of one task | {PARTITIONS} partitions, s | |")
    say("|---|---:|---:|---:|---:|")
    for size in SIZES:
        times = [
            f"{found[size]:.2f} | {found[size] / found[WHOLE]:.2f}" for found in (of_one, of_spread)
        ]
        name = "a task for each partition" if size == WHOLE else f"{size:,}"
        say(f"| {name} | {' | '.join(times)} |")
    reads = 2 * len(SIZES) * (arguments.rounds + 1)
    say(f"after {reads} reads {heap} MB of the driver's heap are in use")
    return 0


def _tasks(offsets: int, sizes: Sequence[int]) -> int:
    """Tasks of so many offsets."""
    return sum(max(1, round(size / offsets)) for size in sizes)


def _heap_in_use_mb(spark: SparkSession) -> int:
    """What a garbage collection leaves."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - Python has no other access
    lang = jvm.java.lang
    lang.System.gc()
    runtime = lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory()) >> 20


def _compare(
    servers: Bench, spark: SparkSession, ends: Mapping[int, int], rounds: int
) -> dict[int, float]:
    def work(size: int) -> None:
        reader = SparkReader(
            session=spark,
            kafka=servers.settings.kafka,
            tasks=partial(_tasks, size),
        )
        count(servers, reader, ends, {})

    return medians(SIZES, rounds, work)


if __name__ == "__main__":
    sys.exit(main())
