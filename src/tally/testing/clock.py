"""A clock that a test sets."""

from datetime import datetime, timedelta

from tally.clock import SystemClock


class ManualClock:
    """A clock that stands still until a test, or a sleep, moves it.

    Args:
        now: The initial time; the machine's time when None.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._now = now or SystemClock().now()
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The time that was set, plus the seconds slept."""
        return self._now

    def monotonic(self) -> float:
        """Seconds slept so far."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Advance both clocks at once, without waiting."""
        self._monotonic += seconds
        self._now += timedelta(seconds=seconds)

    def jump(self, by: timedelta) -> None:
        """Move the wall clock, as setting it does; the monotonic clock does not change."""
        self._now += by
