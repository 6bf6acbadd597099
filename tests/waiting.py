"""Waiting for what another process or thread is about to do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: float = 300, *, pause_s: float = 0.02) -> T:
    """Poll until the condition holds; returns what it is then.

    Raises:
        AssertionError: It did not in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come to it in {timeout_s} s"
        time.sleep(pause_s)
    return found
