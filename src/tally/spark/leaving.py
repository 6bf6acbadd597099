"""The end of a process that is told to end while a Spark Connect server works for it.

A server goes on reading for a client that just disappears. So the process leaves by an exception,
which closes its session on the way out. That exception may come in the middle of gRPC's own code
and leave a lock of the connection held for ever: then whoever uses the connection waits for ever.
"""

import os
import signal
import sys
import time
from threading import Thread
from types import FrameType
from typing import Final

from tally.spark.connect import release_sessions

UNWINDING_S: Final = 2.0
"""Seconds to leave by the exception. Airflow kills a task five seconds after it was told to end."""


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process, with its sessions on a Spark Connect server closed.

    The exit code is 143. When the exception has not ended the process in time, the sessions are
    closed through connections of their own, and the process ends at once.
    """
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    code = 128 + number
    Thread(target=_leave_at_last, args=(code,), name="tally-leaving", daemon=True).start()
    sys.exit(code)


def _leave_at_last(code: int) -> None:
    time.sleep(UNWINDING_S)
    release_sessions()
    os._exit(code)
