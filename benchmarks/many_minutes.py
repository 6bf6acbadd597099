"""A million distinct minutes in one batch: whether it commits, and in how much memory.

Usage: ``.tally/venv/bin/python -m benchmarks.many_minutes [--minutes 1000000]``

Writes one ERROR line for each of so many minutes to each of four partitions of a topic of its own,
on a stack of its own, and counts them by ``jobs/count_errors.py`` under spark-submit with Spark's
default of 1 GB for the driver's JVM. Prints the largest resident memory of the JVM and of the
Python driver, and the time. Ends with exit code 1 unless each minute is in the result four times.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import psutil

from benchmarks.lines import producer
from benchmarks.servers import PARTITIONS, Bench, bench, say
from tally.audit.audit import audit
from tally.context import Context

PIPELINE = "minutes"
CHUNK = 10_000
POLL_S = 0.2


def main() -> int:
    """Run it once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=int, default=1_000_000)
    minutes = parser.parse_args().minutes
    with bench([PIPELINE]) as servers:
        _produce(servers, minutes)
        command = servers.job(servers.plan(PIPELINE))
        began = time.perf_counter()
        peaks = _run(servers, command)
        seconds = time.perf_counter() - began
        right = _is_right(servers.context(), minutes)
    say(f"{minutes:,} minutes x {PARTITIONS} partitions in one batch: {seconds:.0f} s")
    for name, peak in peaks.items():
        say(f"  {name:14} peak {peak / 2**20:7,.0f} MiB resident")
    say(f"every minute counted {PARTITIONS} times: {'yes' if right else 'NO'}")
    return 0 if right else 1


def _produce(servers: Bench, minutes: int) -> None:
    first = datetime(2020, 1, 1)  # noqa: DTZ001 - the lines' own clock has no zone
    with producer(servers) as kafka:
        for start in range(0, minutes, CHUNK):
            values = [
                f"{first + timedelta(minutes=n):%Y-%m-%d %H:%M:%S} ERROR x".encode()
                for n in range(start, min(start + CHUNK, minutes))
            ]
            for partition in range(PARTITIONS):
                messages = [{"value": value} for value in values]
                if kafka.produce_batch(servers.topic, messages, partition=partition) != len(values):
                    raise RuntimeError("the producer's queue is full")
            while len(kafka) > 500_000:
                kafka.poll(0.1)


def _run(servers: Bench, command: list[str]) -> dict[str, int]:
    """Run the job; the largest resident memory of each of its processes, in bytes."""
    peaks = {"JVM": 0, "Python driver": 0}
    with subprocess.Popen(command, env=servers.environment()) as job:
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


def _is_right(ctx: Context, minutes: int) -> bool:
    with ctx.database.transaction(read_only=True) as tx:
        row = tx.row(
            "select count(*) as minutes, min(log_count) as low, max(log_count) as high from minutes"
        )
    expected = {"minutes": minutes, "low": PARTITIONS, "high": PARTITIONS}
    return row == expected and audit(ctx, PIPELINE).holds


if __name__ == "__main__":
    sys.exit(main())
