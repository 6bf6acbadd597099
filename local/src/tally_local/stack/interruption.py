"""Ctrl-C, SIGTERM and SIGHUP as one exception, so that the program can clean up."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType

Handler = signal.Handlers | Callable[[int, FrameType | None], None]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _handled_by(handler: Handler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def interruptible() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Inside, Ctrl-C, SIGTERM and SIGHUP raise KeyboardInterrupt.

    Yields a function that makes a context in which they are ignored, for the clean-up. Only the
    main thread handles signals; in any other thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield nullcontext
        return
    with _handled_by(signal.default_int_handler):
        yield lambda: _handled_by(signal.SIG_IGN)
