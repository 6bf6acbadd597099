"""A record's line as Python reads it, to be shown: what is counted is decided by Spark."""

import json
import re
from collections.abc import Mapping
from typing import Any

from tally.lines.format import BLANKS, Accepted, LineFormat
from tally.lines.pattern import HEAD_BYTES, LEVEL
from tally.lines.time_rule import BEGINS_A_LINE, OFFSET

_FIXED = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ([^ \t\r\n]+)"
_USUAL = str.maketrans(dict.fromkeys(BLANKS, " "))


def level_of(line_format: LineFormat, value: bytes) -> str | None:
    """The level of a record, as the configuration names it; None where the line has none."""
    if line_format.is_fixed:
        word = re.match(_FIXED, line_format.options.line_of(value))
        return word[1].decode("utf-8", "replace") if word else None
    found = _texts(line_format, value) if line_format.has_level else None
    if found is None:
        return None
    printed = found.get(LEVEL) or ""
    if not printed:
        return line_format.options.default_level or None
    return line_format.level_names.get(printed, printed)


def is_line(line_format: LineFormat, value: bytes) -> bool:
    """Whether a record's pattern matches, or it is a JSON object; true for the fixed layout."""
    return line_format.is_fixed or _texts(line_format, value) is not None


def begins_a_line(line_format: LineFormat, value: bytes) -> bool:
    """Whether a record looks like the beginning of a line, even of another format."""
    line = line_format.options.line_of(value).decode("utf-8", "replace")
    return re.search(BEGINS_A_LINE, line, re.ASCII) is not None


def offset_of(line_format: LineFormat, value: bytes) -> str | None:
    """The offset after a record's time, as it is written; None where there is none."""
    if line_format.is_fixed or line_format.states_instant or not line_format.has_time:
        return None
    found = _texts(line_format, value)
    offset = re.match(OFFSET, found[_BEHIND_TIME]) if found else None
    return offset[1] if offset else None


_BEHIND_TIME = " behind the time"


def _texts(line_format: LineFormat, value: bytes) -> dict[str, str] | None:
    """The texts of a line's fields, and what follows its time; None where it is no line."""
    line = line_format.options.line_of(value).decode("utf-8", "replace")
    if Accepted.BLANKS in line_format.options:
        line = line.translate(_USUAL)
    if line_format.is_json:
        return _json_texts(line_format, line)
    found = line_format.parsed_pattern.python.match(re.split("[\r\n]", line[:HEAD_BYTES])[0])
    if found is None:
        return None
    end = found.end(line_format.last_time_name) if line_format.time_names else -1
    behind = found.string[end:] if end >= 0 else ""
    return found.groupdict(default="") | {_BEHIND_TIME: behind}


def _json_texts(line_format: LineFormat, line: str) -> dict[str, str] | None:
    try:
        document = json.loads(
            line, parse_constant=None if Accepted.NAN in line_format.options else _refuse
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    texts = {}
    for name, paths in line_format.json_fields.items():
        values = (_at(document, path) for path in paths)
        texts[name] = next((str(value) for value in values if value is not None), "")
    time = " ".join(texts[name] for name in line_format.time_names)
    shape = line_format.parsed_time_format.shape if line_format.time_format else ""
    return texts | {_BEHIND_TIME: re.sub(rf"\A{shape}", "", time)}


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _at(document: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
