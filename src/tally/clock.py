"""The clock: the time, and waiting. It is handed in, so that a test can set the time."""

import time
from datetime import UTC, datetime


class Clock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The wall clock, with its zone: UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        time.sleep(seconds)
