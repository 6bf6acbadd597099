"""Ctrl-C, SIGTERM and SIGHUP as one exception, so that the program can clean up."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = signal.Handlers | Callable[[int, FrameType | None], None]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible(handler: Handler = signal.default_int_handler) -> Iterator[None]:
    """Inside, Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt.

    Only the main thread handles signals; in any other thread nothing changes.

    Args:
        handler: What handles them instead; ``signal.SIG_IGN`` while a clean-up must not be stopped.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in _SIGNALS if is_main}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
