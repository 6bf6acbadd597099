"""What each delivery costs: the same lines, counted and committed in turns, in one run.

Usage: ``.tally/venv/bin/python -m benchmarks.deliveries [--lines 10000000] [--rounds 3]``

Each delivery counts all lines of a topic in each round, into a pipeline that has counted nothing
yet, in one warm session. What it has counted must be what was written, or it ends with exit code 1.
"""

import sys
from collections.abc import Iterator

from benchmarks.contest import Rounds, take_turns
from benchmarks.page import Table, command
from benchmarks.servers import BYTES, PARTITIONS, PROJECT, new_topic, serving, write_lines
from tally.spark.session import spark_session

DELIVERIES = ("batch", "partition", "rows", "procedure", "files")


def measure(lines: int = 10_000_000, rounds: int = 3) -> Iterator[Table]:
    """Run the comparison.

    Raises:
        RuntimeError: A delivery has counted other than what was written.
    """
    topic = new_topic("deliveries")
    keys = f'topics = ["{topic}"]\nmax_records_per_partition = {lines}\n'
    pipelines = {
        f"{name}{number}": keys + delivery(name, f"{topic}/{number}")
        for name in DELIVERIES
        for number in range(rounds + 1)
    }
    with serving(pipelines, {topic: PARTITIONS}) as servers:
        written = write_lines(servers, lines)
        with spark_session(servers.settings.spark, "deliveries") as spark:
            everybody = {
                name: Rounds(
                    servers=servers,
                    spark=spark,
                    written=written,
                    pipelines=iter([one for one in pipelines if one.startswith(name)]),
                )
                for name in DELIVERIES
            }
            seconds = take_turns(everybody, rounds)
    first, counted = seconds[DELIVERIES[0]], sum(written.errors.values())
    yield Table(
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


def delivery(name: str, folder: str) -> str:
    """A delivery's keys, as TOML.

    Args:
        name: The delivery's.
        folder: For its files, if it writes any.
    """
    files = PROJECT / ".tally" / "bench" / folder
    return f'delivery = "{name}"\n' + (f'files_url = "{files}"\n' if name == "files" else "")


if __name__ == "__main__":
    sys.exit(command(measure))
