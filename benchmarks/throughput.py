"""How fast a backlog is counted, compared with a bare read and with other tools, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.throughput [--lines 10000000] [--rounds 3]``

Writes lines of 71 bytes over four partitions to a topic of its own on a stack of its own, whose
counts per minute it knows, and reads all of them in each of these ways, in turns:

- ``bare``: Spark reads every record and discards it,
- ``tally``: plan, claim, count, check and commit of one batch into MySQL,
- ``consumer-perf``: Kafka's own ConsumerPerformance, records discarded, start-up excluded,
- ``python``: a plain Python loop over confluent-kafka that counts the same in a dictionary.

The result of ``tally`` and of ``python`` must be what was written, or it ends with exit code 1.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.servers import PARTITIONS, Bench, bench, say
from tally.ledger.reading import batch_record
from tally.ledger.results import lines_by_minute
from tally.ledger.tables import Tables
from tally.pipeline.run import run_batch
from tally.spark.session import reader_options, spark_session

LINES_PER_MINUTE = 10_000
LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR", "INFO", "INFO", "DEBUG", "INFO")
CHUNK = 10_000


def main() -> int:
    """Run the comparison and print one line per reader."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    lines, rounds = arguments.lines, arguments.rounds
    pipelines = [f"round{n}" for n in range(rounds + 1)]
    with bench(pipelines, f"max_records_per_partition = {lines}") as servers:
        expected = _produce(servers, lines)
        with spark_session(servers.settings.spark, "throughput") as spark:
            return _compare(servers, spark, lines, rounds, expected)


def _compare(
    servers: Bench, spark: SparkSession, lines: int, rounds: int, expected: Mapping[str, int]
) -> int:
    pipelines = iter(range(rounds + 1))
    found: dict[str, Mapping[str, int]] = {}

    steps: list[Mapping[str, float]] = []

    def tally() -> None:
        found["tally"], taken = _tally(servers, spark, f"round{next(pipelines)}")
        steps.append(taken)

    def python() -> None:
        found["python"] = _python(servers, lines)

    readers: dict[str, Callable[[], object]] = {
        "bare": lambda: _bare(servers, spark),
        "tally": tally,
        "python": python,
    }
    tally()  # warms the session's code, as a bare read before it would
    seconds: dict[str, list[float]] = {name: [] for name in [*readers, "consumer-perf"]}
    for _ in range(rounds):
        for name, read in readers.items():
            began = time.perf_counter()
            read()
            seconds[name].append(time.perf_counter() - began)
        seconds["consumer-perf"].append(_consumer_perf(servers, lines))
    bare = statistics.median(seconds["bare"])
    say(f"{lines:,} lines, {PARTITIONS} partitions, median of {rounds} rounds")
    for name, values in seconds.items():
        median = statistics.median(values)
        say(
            f"  {name:14} {median:7.2f} s  {lines / median / 1e6:5.2f} million lines/s"
            f"  {bare / median:5.2f} of the bare read"
        )
    of_steps = {step: statistics.median(s[step] for s in steps[1:]) for step in steps[-1]}
    said = ", ".join(f"{taken:.2f} s until {step}" for step, taken in of_steps.items())
    say(f"tally, median of each step: {said}")
    wrong = [name for name, counts in found.items() if counts != expected]
    say(f"counts equal to what was written: {'NO: ' + ', '.join(wrong) if wrong else 'yes'}")
    return 1 if wrong else 0


def _produce(servers: Bench, lines: int) -> dict[str, int]:
    """Write the lines; returns the counts that every reader must find."""
    producer = Producer(
        {
            "bootstrap.servers": servers.settings.kafka.bootstrap_servers,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    expected: Counter[str] = Counter()
    began = datetime(2026, 1, 1)  # noqa: DTZ001 - the lines' own clock has no zone
    for first in range(0, lines, CHUNK):
        minute = began + timedelta(minutes=first // LINES_PER_MINUTE)
        count = min(CHUNK, lines - first)
        values = [_line(minute, first + n) for n in range(count)]
        key = f"{minute:%Y-%m-%d %H:%M}"
        expected[key] += sum(b" ERROR " in value[:26] for value in values)
        messages = [{"value": value} for value in values]
        partition = (first // CHUNK) % PARTITIONS
        if producer.produce_batch(servers.topic, messages, partition=partition) != count:
            raise RuntimeError("the producer's queue is full")
        while len(producer) > 500_000:
            producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return dict(expected)


def _line(minute: datetime, number: int) -> bytes:
    level = LEVELS[number % len(LEVELS)]
    return f"{minute:%Y-%m-%d %H:%M}:{number % 60:02} {level} request {number:012}".ljust(
        71
    ).encode()


def _tally(
    servers: Bench, spark: SparkSession, name: str
) -> tuple[dict[str, int], Mapping[str, float]]:
    ctx = servers.context(spark)
    batch_id = servers.plan(name)
    run_batch(ctx, batch_id)
    with ctx.database.transaction(read_only=True) as tx:
        return lines_by_minute(tx, Tables(result=name)), batch_record(tx, batch_id).steps


def _bare(servers: Bench, spark: SparkSession) -> None:
    assigned = {servers.topic: list(range(PARTITIONS))}
    records = (
        spark.read.format("kafka")
        .options(**reader_options(servers.settings.kafka, servers.settings.pipeline("round0")))
        .option("assign", json.dumps(assigned))
        .load()
    )
    records.select(F.max("offset"), F.max(F.octet_length("value"))).collect()


def _python(servers: Bench, lines: int) -> dict[str, int]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers.settings.kafka.bootstrap_servers,
            "group.id": "throughput",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": False,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([Offset(servers.topic, n, 0) for n in range(PARTITIONS)])
    counts: Counter[str] = Counter()
    seen = 0
    while seen < lines:
        for message in consumer.consume(10_000, 1.0):
            value = message.value() or b""
            seen += 1
            if value[20:26] == b"ERROR ":
                counts[value[:16].decode()] += 1
    consumer.close()
    return dict(sorted(counts.items()))


def _consumer_perf(servers: Bench, lines: int) -> float:
    """Seconds that ConsumerPerformance says it fetched for."""
    told = subprocess.run(
        [
            "java",
            "-cp",
            f"{servers.stack.kafka_jars_dir}/*",
            "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server",
            servers.settings.kafka.bootstrap_servers,
            "--topic",
            servers.topic,
            "--num-records",
            str(lines),
            "--timeout",
            "30000",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names, values = ([c.strip() for c in line.split(",")] for line in told.splitlines()[-2:])
    return float(values[names.index("fetch.time.ms")]) / 1000


if __name__ == "__main__":
    sys.exit(main())
