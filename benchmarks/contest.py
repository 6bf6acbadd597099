"""Contestants that do the same work in turns, within one run."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from benchmarks.page import say
from benchmarks.peers.store import Store
from benchmarks.servers import Bench, Written, count

T = TypeVar("T")

Timed = Callable[[], float]
"""Does the work once and returns the seconds that it took."""


def timed(work: Callable[[], object]) -> Timed:
    """The work, timed from its call to its return."""

    def run() -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    return run


def take_turns(contestants: Mapping[T, Timed], rounds: int) -> dict[T, float]:
    """The median seconds of each contestant.

    Args:
        contestants: Each works once in every round, so that all meet the same noise.
        rounds: That are measured; one before them warms everybody's code.
    """
    seconds: dict[T, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            took = run()
            say(f"  round {number or 'of warming'}: {name} {took:.2f} s")
            if number:
                seconds[name].append(took)
    return {name: statistics.median(values) for name, values in seconds.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """Tally's count of all that a topic holds, from plan to commit, once for each round."""

    servers: Bench
    """The servers."""
    spark: SparkSession
    """Where it is counted."""
    written: Written
    """What the topic holds, and so what must be counted."""
    pipelines: Iterator[str]
    """One for each round; each has counted nothing yet."""
    by_minute: bool = True
    """Whether each minute's count is checked, too, and not only the number of all lines."""

    def __call__(self) -> float:
        """The seconds of the next round.

        Raises:
            RuntimeError: Something else was counted than was written.
        """
        ctx, name = self.servers.context(self.spark), next(self.pipelines)
        took = timed(lambda: count(ctx, name, self.written.lines))()
        if self.by_minute:
            self.written.check(Store(self.servers.login(), name))
        return took
