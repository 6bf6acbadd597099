"""Stderr: log lines, and what the processes that a command starts write."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from threading import Thread
from typing import Final

STDERR: Final = 2

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormatter(logging.Formatter):
    """``WARNING offsets_not_mirrored pipeline='error_log' cause='…'``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        fields = [f"{k}={v!r}" for k, v in vars(record).items() if k not in _STANDARD]
        line = " ".join([record.levelname, record.getMessage(), *fields])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def is_worth_saying(record: logging.LogRecord) -> bool:
    """False for what py4j logs through the root logger: it raises the same as an error."""
    return PurePath(record.pathname).parent.name != "py4j"


@contextmanager
def filtered_stderr(is_noise: Callable[[bytes], bool]) -> Iterator[Thread]:
    """Inside the block stderr leaves lines out, and for processes started there it stays so.

    Yields the thread that copies the lines; it ends after the last of those processes.

    Args:
        is_noise: Whether a line, with its end, is left out.
    """
    sys.stderr.flush()
    real = os.dup(STDERR)
    reader, writer = os.pipe()
    os.dup2(writer, STDERR)
    os.close(writer)
    # Not waited for: a process that was started inside may outlive the block, and this one too.
    copying = Thread(target=_copy, args=(reader, real, is_noise), daemon=True)
    copying.start()
    try:
        yield copying
    finally:
        sys.stderr.flush()
        os.dup2(real, STDERR)


def _copy(source: int, target: int, is_noise: Callable[[bytes], bool]) -> None:
    """Copy lines until all writers are gone."""
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as kept:
        for line in lines:
            if not is_noise(line):
                kept.write(line)
