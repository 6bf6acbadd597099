"""A lock file that one process holds at a time; the system releases it when the process ends."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tally.errors import StackError

TIMEOUT_S = 900.0
"""Longer than a first installation over a slow connection should take."""


@contextmanager
def held_alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock ``path``, or raise at once if another process has it.

    Raises:
        StackError: ``what`` runs already.
    """
    taken = _take(path, 0)
    if taken is None:
        raise StackError(
            f"{what} runs already in this checkout", next_step="end that one first, with Ctrl-C"
        )
    with taken:
        yield


@contextmanager
def held(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock ``path``; wait for it, and say so, if another process has it.

    Raises:
        StackError: It was not released in time.
    """
    taken = _take(path, 0)
    if taken is None:
        announce("another process works on this stack: waiting for it")
        taken = _take(path, TIMEOUT_S)
    if taken is None:
        raise StackError(
            f"{path} was held for {TIMEOUT_S:.0f} s by another process",
            next_step="see which tally process still runs",
        )
    with taken:
        yield


def _take(path: Path, timeout_s: float) -> AbstractContextManager[object] | None:
    """A context that releases the lock at its end; None when another process keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return FileLock(path).acquire(timeout=timeout_s)
    except Timeout:
        return None
