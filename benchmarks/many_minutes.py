"""A million distinct minutes in one batch: whether it commits, and in how much memory.

Usage: ``.tally/venv/bin/python -m benchmarks.many_minutes [--minutes 1000000]``

Writes one ERROR line for each of so many minutes to each of four partitions of a topic of its own,
on a stack of its own, and counts them by ``jobs/count_errors.py`` under spark-submit with Spark's
default of 1 GB for the driver's JVM. Prints the largest resident memory of the JVM and of the
Python driver, and the time. Ends with exit code 1 unless each minute is in the result four times.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pyspark
from confluent_kafka import Producer

from tally.audit import audit_ledger
from tally.kafka import Kafka
from tally.migrations import migrate
from tally.minute import plan_batch
from tally.mysql import transaction
from tally.settings import Settings, load_settings
from tally.stack.server import Part
from tally.stack.stack import Stack

PROJECT = Path(__file__).parents[1]
PARTITIONS = 4
CHUNK = 10_000
POLL_S = 0.2


def main() -> int:
    """Run it once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=1_000_000)
    minutes = parser.parse_args().minutes
    stack = Stack(project=PROJECT, home=PROJECT / ".tally" / "bench", announce=_say)
    with stack.foreground([Part.KAFKA, Part.MYSQL]), TemporaryDirectory() as folder:
        config = Path(folder) / "tally.toml"
        settings = _settings(stack, config)
        _produce(settings, minutes)
        batch = plan_batch(settings, "minutes").batch
        if batch is None:
            raise RuntimeError("there is nothing to count")
        began = time.perf_counter()
        peaks = _run(stack, config, batch.batch_id)
        seconds = time.perf_counter() - began
        right = _is_right(settings, minutes)
    _say(f"{minutes:,} minutes x {PARTITIONS} partitions in one batch: {seconds:.0f} s")
    for name, peak in peaks.items():
        _say(f"  {name:14} peak {peak / 2**20:7,.0f} MiB resident")
    _say(f"every minute counted {PARTITIONS} times: {'yes' if right else 'NO'}")
    return 0 if right else 1


def _settings(stack: Stack, config: Path) -> Settings:
    topic = f"minutes-{time.time_ns()}"
    config.touch(mode=0o600)
    overlay = stack.overlay.read_text(encoding="utf-8")
    config.write_text(f'{overlay}\n[pipelines.minutes]\ntopics = ["{topic}"]\n', encoding="utf-8")
    settings = load_settings(config)
    # The ledger of an earlier run knows the pipeline with another topic.
    with transaction(settings.mysql) as tx:
        tx.execute("drop database if exists tally")
        tx.execute("create database tally")
    migrate(settings)
    Kafka(settings.kafka).create_topic(topic, PARTITIONS)
    return settings


def _produce(settings: Settings, minutes: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": settings.kafka.bootstrap_servers,
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    topic = settings.pipeline("minutes").topics[0]
    first = datetime(2020, 1, 1)  # noqa: DTZ001 - the lines' own clock has no zone
    for start in range(0, minutes, CHUNK):
        values = [
            f"{first + timedelta(minutes=n):%Y-%m-%d %H:%M:%S} ERROR x".encode()
            for n in range(start, min(start + CHUNK, minutes))
        ]
        for partition in range(PARTITIONS):
            messages = [{"value": value} for value in values]
            if producer.produce_batch(topic, messages, partition=partition) != len(values):
                raise RuntimeError("the producer's queue is full")
        while len(producer) > 500_000:
            producer.poll(0.1)
    producer.flush()


def _run(stack: Stack, config: Path, batch_id: int) -> dict[str, int]:
    """Run the job; the largest resident memory of each of its processes, in bytes."""
    peaks = {"JVM": 0, "Python driver": 0}
    with subprocess.Popen(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            "--master",
            "local[2]",
            "--driver-class-path",
            f"{stack.jars_dir}/*",
            "--conf",
            "spark.log.level=ERROR",
            str(PROJECT / "jobs" / "count_errors.py"),
            "--batch",
            str(batch_id),
        ],
        env={
            **os.environ,
            "TALLY_CONFIG": str(config),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    ) as job:
        while job.poll() is None:
            for name, resident in _resident(job.pid):
                peaks[name] = max(peaks[name], resident)
            time.sleep(POLL_S)
        if job.returncode:
            raise RuntimeError(f"the job ended with {job.returncode}")
    return peaks


def _resident(leader: int) -> Iterator[tuple[str, int]]:
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(leader)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                name = process.name()
                if name.startswith("java"):
                    yield "JVM", process.memory_info().rss
                elif name.startswith("python"):
                    yield "Python driver", process.memory_info().rss


def _is_right(settings: Settings, minutes: int) -> bool:
    with transaction(settings.mysql, read_only=True) as tx:
        row = tx.row(
            "select count(*) as minutes, min(log_count) as low, max(log_count) as high from minutes"
        )
    expected = {"minutes": minutes, "low": PARTITIONS, "high": PARTITIONS}
    return row == expected and audit_ledger(settings, "minutes").holds


def _say(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    sys.exit(main())
