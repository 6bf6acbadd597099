"""How long a small batch takes: 1,000 new lines, from the start of its program to the commit.

Usage: ``.tally/venv/bin/python -m benchmarks.small_batch [--rounds 5]``

In turns within one run, on a stack of its own:

- a warm Spark Connect server, as ``tally up`` keeps it: the program that Airflow's task starts,
- spark-submit with the flags for small batches (tally.spark.java.QUICK_START) and the archive of
  classes that the set-up makes, as a batch is started without a server,
- the same without the archive, and without the flags,
- a Python program over confluent-kafka that counts the same into the same MySQL, to its end.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import count

from benchmarks.contest import Timed, take_turns, timed
from benchmarks.page import Table, command
from benchmarks.peers.store import Store
from benchmarks.servers import PARTITIONS, PROJECT, Bench, new_topic, plan, serving, write_lines
from tally.spark.java import QUICK_START
from tally_local.stack.server import Part

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


def measure(rounds: int = 5) -> Iterator[Table]:
    """Run the comparison.

    Raises:
        subprocess.CalledProcessError: A batch has failed.
    """
    topics = {new_topic(name): PARTITIONS for name in (PIPELINE, PEER)}
    ours, theirs = topics
    parts = [Part.KAFKA, Part.MYSQL, Part.SPARK]
    with serving({PIPELINE: f'topics = ["{ours}"]'}, topics, parts) as servers:
        environment = servers.environment()
        connect = [sys.executable, str(PROJECT / "jobs" / "count_errors.py"), "--batch"]
        alone = {**environment, "TALLY_SPARK__MASTER": "local[2]"}
        contestants = {
            CONNECT: _batch(servers, lambda number: [*connect, str(number)], environment),
            **{
                name: _batch(servers, partial(servers.job, jvm_flags=flags), alone)
                for name, flags in SUBMIT.items()
            },
            PYTHON: _python(servers, theirs),
        }
        seconds = take_turns(contestants, rounds)
    submit = seconds[next(iter(SUBMIT))]
    yield Table(
        name="small batch",
        headers=[f"{LINES:,} new lines", "seconds", "of spark-submit's"],
        rows=[
            [name, f"{took:.2f}", f"{took / submit:.2f}"]
            for name, took in sorted(seconds.items(), key=lambda item: item[1])
        ],
    )


def _batch(
    servers: Bench, program: Callable[[int], list[str]], environment: Mapping[str, str]
) -> Timed:
    """Counts a batch that was planned before, as Airflow's task does; its end is the commit."""

    def run() -> float:
        write_lines(servers, LINES)
        ctx = servers.context()
        (batch_id,) = plan(ctx, PIPELINE)
        began = datetime.now(UTC).replace(tzinfo=None)
        _call(program(batch_id), environment)
        with ctx.database.transaction(read_only=True) as tx:
            committed_at = "select committed_at from batch where batch_id = %s"
            return float((tx.scalar(committed_at, (batch_id,)) - began).total_seconds())

    return run


def _python(servers: Bench, topic: str) -> Timed:
    """The Python program, which reads what is new in each round."""
    store, rounds = Store(servers.login(), PEER), count()
    each = LINES // PARTITIONS
    command = [sys.executable, "-m", "benchmarks.peers.programs", "python"]

    def run() -> float:
        if not (number := next(rounds)):
            store.create()
        errors = sum(write_lines(servers, LINES, topic=topic).errors.values())
        asked = {
            "servers": servers.settings.kafka.bootstrap_servers,
            "topic": topic,
            "ranges": [[p, number * each, (number + 1) * each] for p in range(PARTITIONS)],
            "login": store.login,
            "peer": PEER,
        }
        took = timed(lambda: _call(command, servers.environment(), json.dumps(asked)))()
        if sum(store.counts().values()) != (number + 1) * errors:
            raise RuntimeError("the Python program has not counted what was written")
        return took

    return run


def _call(command: list[str], environment: Mapping[str, str], given: str = "") -> None:
    subprocess.run(
        command, input=given, check=True, capture_output=True, text=True, env=environment
    )


if __name__ == "__main__":
    sys.exit(command(measure))
