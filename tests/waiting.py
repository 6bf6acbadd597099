"""Waiting for another process or thread."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: float = 300, *, pause_s: float = 0.02) -> T:
    """Poll until the condition is true; returns its value.

    Raises:
        AssertionError: It was not true in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"the condition was not true within {timeout_s} s"
        time.sleep(pause_s)
    return found
