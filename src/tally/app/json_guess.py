"""What the keys of a JSON line, and the digits of its time, tell about it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

# In lower case, without `_` and a leading `@`.
_TIMES: Final = ("timestamp", "time", "ts", "t", "datetime", "date", "when", "asctime")
_LEVELS: Final = ("level", "severity", "lvl", "sev", "loglevel", "levelname", "severitytext", "l")
_EPOCHS: Final = {
    10: "epoch_seconds",
    13: "epoch_milliseconds",
    16: "epoch_microseconds",
    19: "epoch_nanoseconds",
}


def json_keys(text: str) -> tuple[str, ...]:
    """The keys of a line that is a JSON object, ``log.level`` for those of an object in it."""
    return tuple(path for path, _ in _leaves(_read(text)))


def json_guess(text: str) -> dict[str, str]:
    """Which keys of a JSON line are its time and level, and how the time is written.

    Args:
        text: A line; of one that is no JSON object, or has other keys, nothing is told.
    """
    found: dict[str, str] = {}
    for path, value in _leaves(_read(text)):
        key = path.rpartition(".")[2].casefold().replace("_", "").removeprefix("@")
        if key in _LEVELS:
            found.setdefault("level", path)
        if key in _TIMES and "time" not in found:
            found["time"] = path
            if (written := _time_format(str(value))) is not None:
                found["time_format"] = written
    return found


def _read(text: str) -> Mapping[str, Any]:
    """A line as a JSON object; an empty one where it is none."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _leaves(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """What is no object, by its keys: those of objects in it behind a dot."""
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _time_format(value: str) -> str | None:
    if value.partition(".")[0].isdecimal():
        return _EPOCHS.get(len(value.partition(".")[0]))
    if re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", value):
        return "yyyy-MM-dd'T'HH:mm:ss" if value[10] == "T" else "yyyy-MM-dd HH:mm:ss"
    return None
