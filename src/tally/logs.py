"""Log lines: text for people, or JSON for what gathers them, with the batch that they are about."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final

FORMAT_VARIABLE: Final = "TALLY_LOG_FORMAT"
"""The environment variable that asks for ``json``; anything else is text."""

_ABOUT: ContextVar[Mapping[str, Any]] = ContextVar("about", default=MappingProxyType({}))
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Every log line of the block has these fields: pipeline, batch, attempt, run."""
    token = _ABOUT.set({**_ABOUT.get(), **{k: v for k, v in fields.items() if v is not None}})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def configure(level: int, *, timed: bool = False) -> None:
    """Write the log to stderr.

    Args:
        level: The lowest one of text; JSON begins with INFO.
        timed: Whether lines of text begin with their time (UTC), and have the logger's name.
    """
    is_json = os.environ.get(FORMAT_VARIABLE) == "json"
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if is_json else TextFormatter(timed=timed))
    handler.addFilter(is_worth_saying)
    logging.basicConfig(level=min(level, logging.INFO) if is_json else level, handlers=[handler])
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs each connection that it closes


def is_worth_saying(record: logging.LogRecord) -> bool:
    """False for what py4j logs through the root logger: it raises the same as an error."""
    return PurePath(record.pathname).parent.name != "py4j"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    own = {k: v for k, v in vars(record).items() if k not in _STANDARD}
    return {**_ABOUT.get(), **own}


class TextFormatter(logging.Formatter):
    """``WARNING offsets_not_mirrored pipeline='error_log' cause='…'``."""

    def __init__(self, *, timed: bool = False) -> None:
        super().__init__()
        self._timed = timed

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        fields = [f"{key}={value!r}" for key, value in _fields(record).items()]
        level = record.levelname
        begin = [_time_of(record), level, record.name] if self._timed else [level]
        line = " ".join([*begin, record.getMessage(), *fields])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class JsonFormatter(logging.Formatter):
    """``{"at": "…", "level": "WARNING", "logger": "…", "event": "…", "pipeline": "error_log"}``."""

    def format(self, record: logging.LogRecord) -> str:
        """One object in one line; the traceback is a field of it."""
        document = {
            "at": _time_of(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(_fields(record) | document, default=str)
