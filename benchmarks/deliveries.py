"""What each delivery costs: the same lines, counted and committed in turns, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.deliveries [--lines 10000000] [--rounds 5]``

Each delivery counts all lines of a topic in each round, into a pipeline that has counted nothing
yet, in one warm session. What it has counted must be what was written, or it ends with exit code 1.
"""

import argparse
import sys
import time
from collections.abc import Mapping

from benchmarks.contest import take_turns
from benchmarks.lines import BYTES, write_lines
from benchmarks.page import Table
from benchmarks.rounds import Rounds
from benchmarks.servers import PARTITIONS, PROJECT, say, serving
from tally.context import Context
from tally.counting.plan import plan_batch
from tally.replay.run import run_or_replan
from tally.spark.session import spark_session

DELIVERIES = ("batch", "partition", "rows", "procedure", "files")


def main() -> int:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    say("\n".join(measure(asked.lines, asked.rounds).lines()))
    return 0


def measure(lines: int, rounds: int) -> Table:
    """Run the comparison.

    Raises:
        RuntimeError: A delivery has counted other than what was written.
    """
    topic = f"deliveries-{time.time_ns()}"  # Kafka keeps those of earlier runs
    keys = f'topics = ["{topic}"]\nmax_records_per_partition = {lines}\n'
    pipelines = {
        f"{delivery}{number}": keys + _delivery(delivery, f"{topic}/{number}")
        for delivery in DELIVERIES
        for number in range(rounds + 1)
    }
    with serving(pipelines, {topic: PARTITIONS}) as servers:
        written = write_lines(servers, lines, PARTITIONS)
        with spark_session(servers.settings.spark, "deliveries") as spark:
            everybody = {
                d: Rounds(servers=servers, spark=spark, written=written, name=d, count=_count_all)
                for d in DELIVERIES
            }
            return _table(take_turns(everybody, rounds), lines, sum(written.errors.values()))


def _delivery(name: str, folder: str) -> str:
    """Its keys."""
    files = PROJECT / ".tally" / "bench" / folder
    return f'delivery = "{name}"\n' + (f'files_url = "{files}"' if name == "files" else "")


def _count_all(ctx: Context, pipeline: str) -> None:
    run_or_replan(ctx, [batch.batch_id for batch in plan_batch(ctx, pipeline).batches])


def _table(seconds: Mapping[str, float], lines: int, counted: int) -> Table:
    first = seconds[DELIVERIES[0]]
    return Table(
        name="deliveries",
        headers=[
            f"{lines:,} lines of {BYTES} bytes",
            "seconds",
            "million lines/s",
            "rate of the first",
            "rows kept/s",
        ],
        rows=[
            [
                f"`{name}`",
                f"{took:.2f}",
                f"{lines / took / 1e6:.2f}",
                f"{first / took:.2f}",
                f"{counted / took:,.0f}" if name not in {"batch", "partition"} else "-",
            ]
            for name, took in seconds.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
