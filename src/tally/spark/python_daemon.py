"""The daemon that forks Spark's Python workers, which ends when it has had none for a while.

Each session of a Spark Connect server has one of its own on each executor, and Spark ends it with
the executor: a warm server would gather one of 35 MiB with each batch. Spark starts another one
where it finds none. Workers are used once, as no other session finds them again.

Usage: ``python -m tally.spark.python_daemon WORKER_MODULE``, by ``spark.python.daemon.module``.
"""

import os
import signal
import time
from types import FrameType
from typing import Final

from pyspark.daemon import manager

import tally.config.settings  # noqa: F401 - half of what a worker would import, and no thread

IDLE_S: Final = 10.0
"""Seconds without a worker."""
CHECK_S: Final = 2.0


def main() -> None:
    """Fork workers until Spark closes the standard input, or none was there for so long."""
    last = time.monotonic()

    def look(_: int, __: FrameType | None) -> None:
        nonlocal last
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            if time.monotonic() - last > IDLE_S:
                signal.setitimer(signal.ITIMER_REAL, 0)  # none while the interpreter ends
                os.kill(os.getpid(), signal.SIGTERM)
        else:
            last = time.monotonic()

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, CHECK_S, CHECK_S)  # no worker inherits it
    manager()


if __name__ == "__main__":
    main()
