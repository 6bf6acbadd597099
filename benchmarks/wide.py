"""What many partitions cost: the same few lines in 4 partitions, in a thousand, in ten thousand.

Usage: ``.tally/venv/bin/python -m benchmarks.wide [--partitions 1000 10000] [--rounds 3]``

Plans, counts, recounts and asks for the status in one warm session, in each round with a pipeline
that has counted nothing yet; each partition has five lines. A topic has 5,000 partitions at most.
Ends with an error if a line was not counted, or a recount finds a difference.
"""

import sys
from collections.abc import Iterator

from benchmarks.contest import Timed, take_turns, timed
from benchmarks.page import Table, command, say
from benchmarks.servers import PARTITIONS, new_topic, plan, serving, write_lines
from tally.audit.audit import audit
from tally.context import Context
from tally.counting.run import run_batches
from tally.spark.session import spark_session
from tally.status.status import Statuses

STEPS = ("plan", "count", "recount", "status")
LINES_EACH = 5
PARTITIONS_OF_TOPIC = 5_000


def measure(partitions: tuple[int, ...] = (1_000, 10_000), rounds: int = 3) -> Iterator[Table]:
    """Run the comparison; the first of the partitions' lines are also counted in 4 partitions.

    Raises:
        RuntimeError: A line was not counted, or the recount found something else.
    """
    shapes = {f"p{number}": number for number in (PARTITIONS, *partitions)}
    lines = {name: LINES_EACH * max(number, partitions[0]) for name, number in shapes.items()}
    topics = {
        name: {
            new_topic(f"wide-{first}"): min(PARTITIONS_OF_TOPIC, number - first)
            for first in range(0, number, PARTITIONS_OF_TOPIC)
        }
        for name, number in shapes.items()
    }
    pipelines = {
        f"{name}_{n}": f"topics = {list(of)}"
        for name, of in topics.items()
        for n in range(rounds + 1)
    }
    every = {topic: number for of in topics.values() for topic, number in of.items()}
    with serving(pipelines, every) as servers:
        for name, of in topics.items():
            say(f"writing {lines[name]:,} lines over {shapes[name]:,} partitions")
            for topic, number in of.items():
                write_lines(servers, lines[name] // len(of), number, topic=topic)
        with spark_session(servers.settings.spark, "wide") as spark:
            steps: dict[tuple[str, str], Timed] = {}
            for name in shapes:
                one = _Steps(servers.context(spark), name, lines[name])
                steps |= {(name, step): timed(getattr(one, step)) for step in STEPS}
            took = take_turns(steps, rounds)
    both = {name: took[name, "plan"] + took[name, "count"] for name in shapes}
    yield Table(
        name="wide",
        headers=["lines, partitions", "plan and count, s", "ratio", *(f"{s}, s" for s in STEPS)],
        rows=[
            [
                f"{lines[name]:,}, {number:,}",
                f"{both[name]:.2f}",
                f"{both[name] / both['p4']:.2f}",
                *(f"{took[name, step]:.2f}" for step in STEPS),
            ]
            for name, number in shapes.items()
        ],
    )


class _Steps:
    """The steps of one shape, each with the next pipeline once all of them were done."""

    def __init__(self, ctx: Context, name: str, lines: int) -> None:
        self._ctx, self._shape, self._lines, self._round = ctx, name, lines, 0
        self._batch_ids: list[int] = []

    @property
    def _name(self) -> str:
        return f"{self._shape}_{self._round}"

    def plan(self) -> None:
        self._batch_ids = plan(self._ctx, self._name)

    def count(self) -> None:
        records = sum(ran.total.records for ran in run_batches(self._ctx, self._batch_ids))
        if records != self._lines:
            raise RuntimeError(f"{self._name} has counted {records} records of {self._lines}")

    def recount(self) -> None:
        view = audit(self._ctx, self._name, with_recount=True)
        if not view.holds or view.recount is None or view.recount.records != self._lines:
            raise RuntimeError(f"{self._name} was not recounted: {view}")

    def status(self) -> None:
        Statuses(ctx=self._ctx).of(self._name)
        self._round += 1


if __name__ == "__main__":
    sys.exit(command(measure))
