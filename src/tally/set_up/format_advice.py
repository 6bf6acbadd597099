"""What formats make of a sample of lines, and what it suggests: options, fields of JSON, keys."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tally.errors import ConfigError
from tally.formatting import inline_toml, plural
from tally.lines.format import (
    BYTE_ORDER_MARK,
    Accepted,
    LineFormat,
    LineOptions,
    MalformedReason,
)
from tally.lines.parsing import parse_line_format
from tally.lines.pattern import BLANKS
from tally.lines.time_format import EPOCHS
from tally.lines.time_rule import TimeRule, offset_minutes

_HEADER_BYTES: Final = 5
"""Of a schema registry: a zero, and the number of a schema."""
_HEAD_CHARS: Final = 40
"""Where a time may stand."""

_ERRORS: Final = frozenset({"SEVERE", "E"})
"""Names of the level of errors that do not begin with ``err``: Java's own logging, Android."""
_KNOWN: Final = frozenset(
    {
        *("trace", "verbose", "debug", "fine", "finer", "finest", "config", "info", "information"),
        *("log", "notice", "statement", "warn", "warning", "err", "error", "severe", "fatal"),
        *("crit", "critical", "alert", "emerg", "emergency", "panic", "dpanic", "audit", "off"),
    }
)
"""Levels that a logging library has, in lower case."""
_NAMED: Final = 20

# In lower case, without `_` and a leading `@`.
_TIMES: Final = ("timestamp", "time", "ts", "t", "datetime", "date", "when", "asctime")
_LEVELS: Final = ("level", "severity", "lvl", "sev", "loglevel", "levelname", "severitytext", "l")
_EPOCHS: Final = {9 + len(str(scale)): name for name, scale in EPOCHS.items()}
"""By the digits that a time since 1970 has in these years."""


Configured = str | Mapping[str, Any]
"""A line format as the configuration has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedLine:
    """A line of the sample, and what is read in it."""

    line: str
    """Its text; unprintable characters are escaped, and a long line is cut."""
    reason: str | None
    """Why it is malformed; null when it is not."""
    minute: str | None
    """Its minute, ``YYYY-MM-DD HH:MM:00``; null when it is malformed."""
    fields: Mapping[str, str]
    """Its level and other fields, by name; empty when it is malformed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatTrial:
    """What one format makes of the sample."""

    line_format: str
    """The format's name; ``custom`` for a pattern of one's own."""
    understood: int
    """Lines that it understands."""
    malformed: Mapping[str, int]
    """The other lines, by the reason."""
    continuations: int
    """Those among them that ``continuation_lines = "unmatched"`` would leave out."""
    levels: Mapping[str, int]
    """Lines by level, the most frequent first."""
    known_levels: int | None
    """Lines whose level logging libraries or the format have; null without levels."""
    offsets: Mapping[str, int]
    """Lines that it understands, by their offset from UTC."""
    examples: tuple[TriedLine, ...]
    """Some lines that it understands."""
    failures: tuple[TriedLine, ...]
    """Some lines that are malformed, of each reason the first."""
    toml: str
    """The keys to paste into the configuration."""


def keys_to_paste(
    configured: Configured,
    rule: TimeRule,
    levels: Sequence[str] | None,
    comments: Iterable[str],
    *,
    topic: str | None,
    pipeline: str | None,
) -> str:
    """The keys of a pipeline that differ from the defaults, as TOML.

    Args:
        configured: The line format, as the configuration has it.
        rule: How the minute follows.
        levels: Those to count; None for the default.
        comments: What to say below the keys.
        topic: The pipeline's topic; None when a file was tried.
        pipeline: Its name; None for one that is still to be configured.
    """
    time = "record" if rule.from_record else "instant" if rule.by_offset else None
    keys = {
        "topics": [topic or "TOPIC"],
        "line_format": configured,
        "time": time,
        "assume_year": rule.assume_year,
        "time_zone": rule.zone,
        "levels": levels,
    }
    rows = [f"[pipelines.{pipeline or 'NAME'}]"]
    rows += [f"{key} = {inline_toml(value)}" for key, value in keys.items() if value is not None]
    rows += [f"# {comment}" for comment in comments]
    return "\n".join([*rows, *(["# its other keys stay as they are"] if pipeline else [])])


def comments_on(trial: FormatTrial, rule: TimeRule, levels: Sequence[str] | None) -> Iterator[str]:
    """What a sample shows and the keys do not.

    Args:
        trial: What the format makes of the sample.
        rule: How the minute follows.
        levels: Those to count; None for the default.
    """
    if levels and not any(map(_is_error, levels)):
        yield "all levels of the sample: keep those that mean an error"
    counted, seen = ["ERROR"] if levels is None else levels, list(trial.levels)
    if counted and seen and not set(counted) & set(seen):
        yield f"no line of the sample is at {', '.join(counted)}: {', '.join(seen[:_NAMED])}"
    if levels == []:
        yield 'to count some of them only: filter = { text = ["…"] }'
    if lacking := trial.malformed.get(MalformedReason.NO_LEVEL):
        yield (
            f"{plural(lacking, 'line')} without a level: if that means one, name it by "
            "default_level in line_format"
        )
    by_minutes = dict(sorted((offset_minutes(text), text) for text in trial.offsets))
    different = list(by_minutes.values())
    if len(different) > 1 and not (rule.by_offset or rule.from_record):
        yield (
            f"times have different offsets ({', '.join(different[:_NAMED])}), which are not read; "
            'time = "instant" shows all of them in time_zone'
        )
    if trial.understood and trial.continuations:
        lines = plural(trial.continuations, "line")
        yield f'continuation_lines = "unmatched"  # for {lines}'


def no_known_level(seen: Sequence[str]) -> str:
    """A comment in place of the keys: they would count nothing."""
    return (
        f"# what stands where the level should is no level that is known: "
        f"{', '.join(seen[:_NAMED])}\n# try another format, or a pattern of your own"
    )


def levels_to_configure(line_format: LineFormat, seen: Iterable[str]) -> list[str] | None:
    """The levels to configure; None where the default does, empty where lines have no level.

    Those that mean an error. Where neither the sample nor the format has one that is known to,
    all of the sample.
    """
    if not line_format.has_level:
        return []
    words = [level for level in seen if not any(map(str.isspace, level))]
    for levels in (words, line_format.known_levels):
        if errors := [level for level in levels if _is_error(level)]:
            return None if errors == ["ERROR"] else errors
    try:
        line_format.printed_levels(["ERROR"])
    except ValueError:
        return words
    return None


def is_known(line_format: LineFormat, level: str) -> bool:
    """Whether a level is one of the format's, where it alone decides, or of a logging library."""
    own = line_format.known_levels
    return level in own if own else level.casefold() in _KNOWN


def _is_error(level: str) -> bool:
    """Whether a level is that of errors, by any of the names that it has."""
    return level.casefold().startswith("err") or level in _ERRORS


def json_keys(text: str) -> tuple[str, ...]:
    """The keys of a line that is a JSON object, ``log.level`` for those of an object in it."""
    return tuple(path for path, _ in _leaves(_read(text)))


def json_guess(text: str) -> dict[str, str]:
    """Which keys of a JSON line are its time and level, and how the time is written.

    Args:
        text: A line; of one that is no JSON object, or has other keys, nothing is known.
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


def option_guess(value: bytes, options: LineOptions) -> str | None:
    """The option that a record seems to need, as the configuration has it; None for none.

    Args:
        value: A record.
        options: Those that are set.
    """
    line = options.line_of(value)
    if line[:1] == b"\0" and len(line) > _HEADER_BYTES and not options.skip_bytes:
        return f"skip_bytes = {_HEADER_BYTES}"
    accepted = _accepted_guess(value, options)
    return f'accept = ["{accepted}"]' if accepted else None


def accepting(configured: Configured, malformed: Iterable[bytes]) -> Configured:
    """A line format as it is configured, with what malformed records seem to need accepted.

    Only what does something for this format.
    """
    options = parse_line_format(configured, key="line_format").options
    for accepted in sorted({guess for v in malformed if (guess := _accepted_guess(v, options))}):
        table = {"name": configured} if isinstance(configured, str) else configured
        with suppress(ConfigError):
            wider = {**table, "accept": [*table.get("accept", ()), str(accepted)]}
            parse_line_format(wider, key="line_format")
            configured = wider
    return configured


def _accepted_guess(value: bytes, options: LineOptions) -> Accepted | None:
    line = options.line_of(value)
    text = line.decode("utf-8", "replace")
    if line.startswith(BYTE_ORDER_MARK):
        return Accepted.BYTE_ORDER_MARK
    constants: list[str] = []
    if Accepted.NAN not in options and _read(text, constants) and constants:
        return Accepted.NAN
    if Accepted.BLANKS not in options and set(text[:_HEAD_CHARS]) & set(BLANKS):
        return Accepted.BLANKS
    return None


def _read(text: str, constants: list[str] | None = None) -> Mapping[str, Any]:
    """A line as a JSON object; an empty one where it is none.

    Args:
        text: The line.
        constants: Gets the numbers that are none, such as ``NaN``.
    """
    keep = None if constants is None else constants.append
    try:
        found = json.loads(text, parse_constant=keep) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _leaves(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """What is no object, by its keys: those of objects in it after a dot."""
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
