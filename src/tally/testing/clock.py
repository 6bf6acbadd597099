"""A clock that a test sets."""

from datetime import datetime, timedelta

from tally.clock import SystemClock


class ManualClock:
    """A clock that stands still until a test, or a sleep, moves it.

    Args:
        now: What it shows first; the machine's time when None.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._now = now or SystemClock().now()
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The time that was set, plus what was slept."""
        return self._now

    def monotonic(self) -> float:
        """Seconds slept so far."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self._monotonic += seconds
        self._now += timedelta(seconds=seconds)

    def jump(self, by: timedelta) -> None:
        """Let the wall clock jump, as one that is set does; the monotonic one does not."""
        self._now += by
