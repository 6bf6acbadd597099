"""Waiting for what another process or thread is about to do."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_s: float = 120) -> None:
    """Poll until the condition holds.

    Raises:
        AssertionError: It did not in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come to it in {timeout_s} s"
        time.sleep(0.02)
