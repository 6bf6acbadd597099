"""Waiting for another process or thread."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PART, PAUSE_MAX_S = 50, 0.2
"""A pause is this part of what was waited so far, and no longer than so many seconds."""


def wait_until(condition: Callable[[], T], timeout_s: float = 300, *, pause_s: float = 0.02) -> T:
    """Poll until the condition is true, less often the longer it takes; returns its value.

    Raises:
        AssertionError: It was not true in time.
    """
    begun = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - begun
        assert waited < timeout_s, f"the condition was not true within {timeout_s} s"
        time.sleep(max(pause_s, min(waited / PART, PAUSE_MAX_S)))
    return found
