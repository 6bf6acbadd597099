"""Ctrl-C, SIGTERM and SIGHUP as one exception, so that the program can clean up."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


@contextmanager
def _ignoring() -> Iterator[None]:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Inside, Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt.

    Yields a function that makes a context in which they are ignored, for the clean-up. Only the
    main thread handles signals; in any other thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield nullcontext
        return
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        yield _ignoring
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
