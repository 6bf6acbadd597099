"""What each option of Spark's Kafka reader gains, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.reader_options [--lines 4000000] [--rounds 5]``

Counts a small range (1,000 lines) and a long one by Tally's own counting, with Tally's defaults and
with one of them changed at a time, in turns, and prints medians as multiples of the defaults'.
"""

import argparse
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from benchmarks.contest import medians
from benchmarks.lines import producer
from benchmarks.servers import PARTITIONS, Bench, bench, say
from tally.aggregates.counts import CountRequest
from tally.model import OffsetRange, TopicPartition
from tally.spark.counting import SparkReader
from tally.spark.session import spark_session

PIPELINE = "reader_options"
LINE = b"2026-11-20 14:05:08 INFO 10.0.0.7 GET /cart/items/4711 200 1532 bytes in 12 ms"
SMALL = 1_000
CHUNK = 10_000

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "Tally's defaults": {},
    "kafka.fetch.max.wait.ms = 500 (Kafka's own)": {"kafka.fetch.max.wait.ms": "500"},
    "kafka.fetch.max.wait.ms = 100": {"kafka.fetch.max.wait.ms": "100"},
    "kafka.max.poll.records = 500 (Kafka's own)": {"kafka.max.poll.records": "500"},
    "kafka.max.partition.fetch.bytes = 1048576 (Kafka's own)": {
        "kafka.max.partition.fetch.bytes": "1048576"
    },
    "kafka.check.crcs = true (Kafka's own)": {"kafka.check.crcs": "true"},
}


def main() -> int:
    """Run it once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with bench([PIPELINE]) as servers, spark_session(servers.settings.spark, PIPELINE) as spark:
        produce(servers, evenly(SMALL))
        small = _compare(servers, spark, SMALL, arguments.rounds)
        produce(servers, evenly(arguments.lines - SMALL))
        long = _compare(servers, spark, arguments.lines, arguments.rounds)
    say(f"{PARTITIONS} partitions, median of {arguments.rounds} rounds")
    say(f"| option | {SMALL:,} lines, s | of the defaults' | {arguments.lines:,} lines, s | |")
    say("|---|---:|---:|---:|---:|")
    for name in VARIANTS:
        times = [
            f"{found[name]:.2f} | {found[name] / found[next(iter(VARIANTS))]:.2f}"
            for found in (small, long)
        ]
        say(f"| {name} | {' | '.join(times)} |")
    return 0


def _compare(servers: Bench, spark: SparkSession, lines: int, rounds: int) -> dict[str, float]:
    reader = SparkReader(session=spark, kafka=servers.settings.kafka)
    return medians(
        VARIANTS, rounds, lambda name: count(servers, reader, evenly(lines), VARIANTS[name])
    )


def evenly(lines: int) -> dict[int, int]:
    """As many lines in each partition."""
    return dict.fromkeys(range(PARTITIONS), lines // PARTITIONS)


def count(
    servers: Bench,
    reader: SparkReader,
    ends: Mapping[int, int],
    options: Mapping[str, str],
) -> None:
    """Count partitions from their beginning.

    Args:
        servers: With the topic.
        reader: Counts.
        ends: Where each partition ends.
        options: Of the pipeline's reader.

    Raises:
        RuntimeError: There were more or fewer records.
    """
    pipeline = servers.settings.pipeline(PIPELINE).model_copy(update={"reader": dict(options)})
    ranges = [
        OffsetRange(
            partition=TopicPartition(topic=servers.topic, partition=number),
            from_offset=0,
            until_offset=end,
        )
        for number, end in ends.items()
    ]
    asked = CountRequest(pipeline=pipeline, ranges=ranges)
    with reader.count(asked) as counts:
        records = sum(total.records for total in counts.totals.values())
    if records != sum(ends.values()):
        raise RuntimeError(f"{records} records instead of {sum(ends.values())}")


def produce(servers: Bench, more: Mapping[int, int]) -> None:
    """Write so many more lines into partitions.

    Each read ends at its partition's end, as a minute batch does.
    """
    with producer(servers) as kafka:
        for partition, lines in more.items():
            for first in range(0, lines, CHUNK):
                values = [{"value": LINE}] * min(CHUNK, lines - first)
                kafka.produce_batch(servers.topic, values, partition=partition)
                while len(kafka) > 500_000:
                    kafka.poll(0.1)


if __name__ == "__main__":
    sys.exit(main())
