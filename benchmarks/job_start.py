"""How long a small batch takes: 1,000 new lines, from the start of spark-submit to the commit.

Usage: ``.tally/venv/bin/python -m benchmarks.job_start [--rounds 3]``

Compares flags of the driver's JVM, in turns within one run, on a stack of its own:

- ``plain``: no flags,
- ``quick``: the flags that small batches get (tally.spark.session.QUICK_START),
- ``archive``: these and the archive of classes that the set-up makes, as a batch is started.
"""

import argparse
import statistics
import subprocess
import sys
import time

from benchmarks.servers import PARTITIONS, Bench, bench, say
from tally.model import TopicPartition
from tally.spark.session import QUICK_START
from tally_local.demo.writer import LineWriter

PIPELINE = "start"
LINES = 1_000
NO_ARCHIVE = "-Xshare:auto"  # Java's own default; an option of its own keeps Tally's away


def main() -> int:
    """Run the comparison and print one line per variant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    variants = {"plain": NO_ARCHIVE, "quick": f"{QUICK_START} {NO_ARCHIVE}", "archive": QUICK_START}
    with bench([PIPELINE]) as servers:
        _run(servers, QUICK_START)  # the first one reads all files into the page cache
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, flags in variants.items():
                seconds[name].append(_run(servers, flags))
    plain = statistics.median(seconds["plain"])
    for name, values in seconds.items():
        median = statistics.median(values)
        say(
            f"  {name:10} median {median:5.1f} s  min {min(values):5.1f}  max {max(values):5.1f}"
            f"  {median / plain:4.2f} of plain"
        )
    return 0


def _run(servers: Bench, flags: str) -> float:
    """Write the lines, plan, and time spark-submit."""
    writer = LineWriter(servers.settings.kafka)
    for number in range(LINES):
        partition = TopicPartition(topic=servers.topic, partition=number % PARTITIONS)
        writer.write(partition, b"2026-11-20 14:05:08 ERROR x", lambda _: None, _fail)
    writer.flush()
    command = servers.job(servers.plan(PIPELINE), flags)
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=servers.environment())
    return time.perf_counter() - began


def _fail(why: str) -> None:
    raise RuntimeError(why)


if __name__ == "__main__":
    sys.exit(main())
