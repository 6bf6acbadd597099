"""Log lines on stderr: the event's stable name and its fields."""

import logging
from pathlib import PurePath

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
