"""Contestants that do the same work in turns, within one run."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from benchmarks.servers import say

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


def medians(variants: Iterable[T], rounds: int, work: Callable[[T], None]) -> dict[T, float]:
    """The median seconds of each variant of some work; the variants take turns."""
    return take_turns({variant: timed(partial(work, variant)) for variant in variants}, rounds)
