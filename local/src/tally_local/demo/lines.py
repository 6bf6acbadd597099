"""Access-log lines as a busy service writes them: levels, bursts of errors, some malformed ones."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

LEVELS: Final = ("INFO", "DEBUG", "WARN", "ERROR", "FATAL")
CALM_WEIGHTS: Final = (70, 15, 9, 5, 1)
BURST_WEIGHTS: Final = (30, 5, 15, 48, 2)
MALFORMED_SHARE: Final = 0.002
BURST_SHARE: Final = 0.05

MESSAGES: Final = {
    "INFO": ("GET /orders/{n} 200 {ms}ms", "POST /login 204 {ms}ms", "GET /health 200 1ms"),
    "DEBUG": ("cache hit orders:{n}", "pool has {n} idle connections"),
    "WARN": ("GET /orders/{n} 429 {ms}ms", "retrying payment {n} after ERROR from upstream"),
    "ERROR": ("GET /orders/{n} 500 {ms}ms", "payment {n} failed: upstream timed out"),
    "FATAL": ("out of file descriptors, restarting worker {n}",),
}

MALFORMED: Final[tuple[bytes | None, ...]] = (
    None,
    b"",
    b"\tat com.example.Orders.load(Orders.java:42)",
    b"2026-13-01 10:00:00 ERROR month thirteen",
    b"2026-02-30 10:00:00 INFO a day that never was",
    b"\xff\xfe\x00binary",
    b"ERROR without a time",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A record's value, and what the count must make of it."""

    value: bytes | None
    """The record's value in Kafka."""
    minute: str | None
    """``YYYY-MM-DD HH:MM``; None for a record that cannot be understood."""
    level: str | None
    """Its level; None for a record that cannot be understood."""


class LineMaker:
    """Makes lines; the same seed makes the same lines.

    Args:
        seed: The seed of the random choices.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a demonstration, no secret

    def batch(self, now: datetime, count: int) -> Iterator[Line]:
        """``count`` lines with times around ``now``; sometimes with a burst of errors."""
        burst = self._random.random() < BURST_SHARE
        for _ in range(count * 5 if burst else count):
            yield self._line(now, burst=burst)

    def _line(self, now: datetime, *, burst: bool) -> Line:
        if self._random.random() < MALFORMED_SHARE:
            return Line(value=self._random.choice(MALFORMED), minute=None, level=None)
        level = self._random.choices(LEVELS, BURST_WEIGHTS if burst else CALM_WEIGHTS)[0]
        text = self._random.choice(MESSAGES[level]).format(
            n=self._random.randrange(100_000), ms=self._random.randrange(1, 900)
        )
        line = f"{now:%Y-%m-%d %H:%M:%S} {level} {text}"
        return Line(value=line.encode(), minute=f"{now:%Y-%m-%d %H:%M}", level=level)
