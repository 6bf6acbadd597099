"""Stopping a command by a signal: SIGTERM cleans up and says the same as Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TerminatedError(KeyboardInterrupt):
    """The process got SIGTERM; everybody who cleans up after Ctrl-C does so after it, too."""


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into :class:`TerminatedError`; outside of the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def is_termination(error: BaseException) -> bool:
    """Whether an error, or what it was raised from, is a :class:`TerminatedError`."""
    return isinstance(error, TerminatedError) or isinstance(error.__cause__, TerminatedError)


def _terminate(_: int, __: FrameType | None) -> None:
    raise TerminatedError
