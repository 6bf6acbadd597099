"""How long a small batch takes: 1,000 new lines, from the start of its program to the commit.

Usage: ``.tally/venv/bin/python -m benchmarks.small_batch [--rounds 5]``

In turns within one run, on a stack of its own:

- a warm Spark Connect server, as ``tally up`` keeps it: the program that Airflow's task starts,
- spark-submit with the flags for small batches (tally.spark.java.QUICK_START) and the archive of
  classes that the set-up makes, as a batch is started without a server,
- the same without the archive, and without the flags,
- a Python program over confluent-kafka that counts the same into the same MySQL.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.contest import Timed, take_turns, timed
from benchmarks.page import Table
from benchmarks.peers import store
from benchmarks.servers import PARTITIONS, PROJECT, Bench, login, say, serving
from tally.model import TopicPartition
from tally.spark.java import QUICK_START
from tally_local.demo.writer import LineWriter
from tally_local.stack.server import Part

TABLE = "small batch"
PIPELINE = "small"
PEER = "python_program"
LINES = 1_000
NO_ARCHIVE = "-Xshare:auto"  # Java's own default; an option of its own keeps Tally's away
SUBMIT = {
    "spark-submit, as Tally starts it": QUICK_START,
    "spark-submit without the archive of classes": f"{QUICK_START} {NO_ARCHIVE}",
    "spark-submit without archive and flags": NO_ARCHIVE,
}
CONNECT = "**a warm Spark Connect server**"
PYTHON = "a Python program over confluent-kafka"


def main() -> int:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    table = measure(parser.parse_args().rounds)
    say("\n".join(table.lines()))
    return 0


def measure(rounds: int) -> Table:
    """Run the comparison.

    Raises:
        subprocess.CalledProcessError: A batch has failed.
    """
    topics = {f"{name}-{time.time_ns()}": PARTITIONS for name in (PIPELINE, PEER)}
    ours, theirs = topics
    parts = [Part.KAFKA, Part.MYSQL, Part.SPARK]
    with serving({PIPELINE: f'topics = ["{ours}"]'}, topics, parts) as servers:
        connect = [sys.executable, str(PROJECT / "jobs" / "count_errors.py"), "--batch", "0"]
        contestants: dict[str, Timed] = {CONNECT: _batch(servers, connect, servers.environment())}
        alone = {**servers.environment(), "TALLY_SPARK__MASTER": "local[2]"}
        for name, flags in SUBMIT.items():
            contestants[name] = _batch(servers, servers.job(0, flags), alone)
        contestants[PYTHON] = _Python(servers=servers, topic=theirs)
        seconds = take_turns(contestants, rounds)
    submit = seconds[next(iter(SUBMIT))]
    return Table(
        name=TABLE,
        headers=[f"{LINES:,} new lines", "seconds", "of spark-submit's"],
        rows=[
            [name, f"{took:.2f}", f"{took / submit:.2f}"]
            for name, took in sorted(seconds.items(), key=lambda item: item[1])
        ],
    )


def _batch(servers: Bench, command: list[str], environment: Mapping[str, str]) -> Timed:
    def run() -> float:
        _write(servers, servers.topic)
        planned = [*command[:-1], str(servers.plan(PIPELINE))]  # plan and count are two tasks
        return timed(lambda: _call(planned, environment))()

    return run


@dataclass(kw_only=True, slots=True)
class _Python:
    """The Python program; each round reads what is new."""

    servers: Bench
    topic: str
    counted: int = 0
    """Offsets of each partition."""

    def __call__(self) -> float:
        kafka, mysql = self.servers.settings.kafka.bootstrap_servers, login(self.servers)
        if not self.counted:
            store.prepare(mysql, PEER)
        _write(self.servers, self.topic)
        begin, self.counted = self.counted, self.counted + LINES // PARTITIONS
        ranges = [[number, begin, self.counted] for number in range(PARTITIONS)]
        asked = {
            "servers": kafka,
            "topic": self.topic,
            "ranges": ranges,
            "login": mysql,
            "peer": PEER,
        }
        command = [sys.executable, "-m", "benchmarks.peers.python_consumer"]
        took = timed(lambda: _call(command, self.servers.environment(), json.dumps(asked)))()
        if sum(store.result(mysql, PEER).values()) != self.counted * PARTITIONS:
            raise RuntimeError("the Python program has not counted what was written")
        return took


def _write(servers: Bench, topic: str) -> None:
    writer = LineWriter(servers.settings.kafka)
    for number in range(LINES):
        partition = TopicPartition(topic=topic, partition=number % PARTITIONS)
        writer.write(partition, b"2026-11-20 14:05:08 ERROR x", lambda _: None, _fail)
    writer.flush()


def _call(command: list[str], environment: Mapping[str, str], given: str = "") -> None:
    subprocess.run(
        command, input=given, check=True, capture_output=True, text=True, env=environment
    )


def _fail(why: str) -> None:
    raise RuntimeError(why)


if __name__ == "__main__":
    sys.exit(main())
