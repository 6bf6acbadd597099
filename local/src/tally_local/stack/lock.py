"""A lock file that one process holds at a time; the system releases it when the process ends."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock, Timeout

from tally.errors import StackError

TIMEOUT_S = 900.0
"""Longer than a first installation over a slow connection should take."""


def held_alone(path: Path, what: str) -> AbstractContextManager[object]:
    """Take the lock ``path``, or raise at once if another process has it.

    Returns:
        A context that releases the lock at its end, as for :func:`held`.

    Raises:
        StackError: ``what`` runs already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(path).acquire(timeout=0)
    except Timeout:
        raise StackError(
            f"{what} runs already in this checkout", next_step="end that one first, with Ctrl-C"
        ) from None


def held(path: Path, announce: Callable[[str], None]) -> AbstractContextManager[object]:
    """Take the lock ``path``; wait for it, and announce that, if another process has it.

    Raises:
        StackError: It was not released in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        announce("another process works on this stack: waiting for it")
    try:
        return lock.acquire(timeout=TIMEOUT_S)
    except Timeout:
        raise StackError(
            f"{path} was held for {TIMEOUT_S:.0f} s by another process",
            next_step="see which tally process still runs",
        ) from None
