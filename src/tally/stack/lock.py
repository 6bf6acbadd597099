"""One process at a time, told by a lock file that dies with whoever holds it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from tally.errors import StackError

TIMEOUT_S = 900.0
"""Longer than a first installation on a slow line should take."""


@contextmanager
def held_alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock ``path``, or say at once that another process has it.

    Raises:
        StackError: ``what`` runs already.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise StackError(
            f"{what} runs already in this checkout", next_step="end that one first, with Ctrl-C"
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def held(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock ``path``; wait for it, and say so, if another process has it.

    Raises:
        StackError: It was not to be had in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        announce("another process works on this stack: waiting for it")
        try:
            lock.acquire(timeout=TIMEOUT_S)
        except Timeout as error:
            raise StackError(
                f"{path} was held for {TIMEOUT_S:.0f} s by another process",
                next_step="see which tally still runs",
            ) from error
    try:
        yield
    finally:
        lock.release()
