"""Line formats: how a log line says when it was written and at which level.

A line format is one of three: the fixed layout ``YYYY-MM-DD HH:MM:SS LEVEL message``, found by byte
positions; a pattern with named groups; or JSON with fields by their paths. The last two have a time
format, unless their lines have no time. What counts as malformed, and what a JSON value is as text,
is defined in ``docs/line-formats.md``; :mod:`tally.spark.line_columns` computes it.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Final

from tally.lines.backtracking import Group
from tally.lines.pattern import CLOCK, DATE, LEVEL, TIME, LinePattern, parse_pattern
from tally.lines.time_format import TimeFormat, parse_time_format

FIXED: Final = "fixed"
"""The name of the fixed layout."""

_MEANING_VERSION: Final = 1

JsonPath = tuple[str, ...]
"""Keys of nested objects, the outermost first."""


BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Accepted(StrEnum):
    """What is understood besides."""

    BYTE_ORDER_MARK = "byte_order_mark"
    """UTF-8's mark before a line."""
    BLANKS = "unicode_blanks"
    """Unicode's blanks for that of ASCII: in a pattern's line, and in the time of JSON lines."""
    EXPONENT = "exponent"
    """A number since 1970 with an exponent, such as ``1.7e9``."""
    NAN = "nan"
    """``NaN``, ``Infinity`` and ``-Infinity`` in JSON, which is then read as ``null``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineOptions:
    """What stands before a line, what it may lack, and unusual spellings.

    Each is off unless it is set, and part of the fingerprint then.
    """

    skip_bytes: int = 0
    """Bytes before each line, such as the five of a schema registry's header."""
    default_level: str = ""
    """The level of a line that has none, or an empty one; empty where such a line is malformed.
    Does nothing for a pattern that matches no line without a level: such a line is no match."""
    accept: tuple[Accepted, ...] = ()
    """What is understood besides, sorted."""

    def __contains__(self, accepted: Accepted) -> bool:
        return accepted in self.accept

    def line_of(self, value: bytes) -> bytes:
        """A record's value without what stands before its line."""
        line = value[self.skip_bytes :]
        return line.removeprefix(BYTE_ORDER_MARK) if Accepted.BYTE_ORDER_MARK in self else line

    def fingerprint(self) -> str:
        """Identifies what is set; empty when nothing is."""
        parts = [
            f"skip {self.skip_bytes}" if self.skip_bytes else "",
            f"default level {self.default_level}" if self.default_level else "",
            f"accept {', '.join(self.accept)}" if self.accept else "",
        ]
        return "; ".join(filter(None, parts))


NO_OPTIONS: Final = LineOptions()


class MalformedReason(StrEnum):
    """Why a record could not be understood, in the order in which the reasons are looked for."""

    NULL_VALUE = "null-value"
    """The record has no value."""
    EMPTY_VALUE = "empty-value"
    """The value has no bytes."""
    NO_MATCH = "no-match"
    """The pattern found neither time nor level, or the record is not one JSON object. Not for the
    fixed layout."""
    NO_TIME = "no-time"
    """There is nothing that looks like a time where the time should be, or the record has no
    timestamp where the time or the year is taken from it."""
    TIME_INVALID = "time-invalid"
    """No calendar or clock has this time (month 13, 30 February, second 60), or, for a pattern or
    JSON, it is not written in the time format."""
    TIME_OUT_OF_RANGE = "time-out-of-range"
    """The year is below 1000 or above 9999: MySQL's DATETIME does not hold it."""
    NO_LEVEL = "no-level"
    """There is no level where it should be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineFormat:
    """How to find time and level in a line.

    Raises:
        ValueError: ``pattern`` or ``time_format`` is invalid, there is a time without a format or
            the other way round, these three do not make one of the three kinds, or an option
            would do nothing. Where a key is missing or does nothing the message begins with it.
    """

    name: str
    """``fixed``, a catalogue name or ``custom``."""
    description: str = ""
    """Whose lines these are."""
    example: str = ""
    """A line that the format understands; empty for a custom one."""
    pattern: str = ""
    """Regular expression with the groups ``time`` (or ``date`` and ``clock``) and ``level`` where
    the lines have them, and any others that labels or a filter name; empty for the other kinds."""
    json_fields: Mapping[str, tuple[JsonPath, ...]] = field(default_factory=dict, hash=False)
    """Where the fields of JSON lines are looked for, by the name that labels, filters and the
    format know them by; the first place that has a value wins. Empty for the other kinds."""
    time_format: str = ""
    """Format of the time; empty for the fixed layout and for lines without a time."""
    level_names: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Level by what the line prints, where the two differ (RFC 5424); else empty."""
    levels: tuple[str, ...] = ()
    """All levels that the producer prints, where it alone decides; empty where any may stand."""
    options: LineOptions = NO_OPTIONS
    """What may stand before a line, what it may lack, and unusual spellings."""

    def __post_init__(self) -> None:
        if (self.pattern and self.is_json) or (self.is_fixed and self.time_format):
            raise ValueError(
                "a line format has a pattern or JSON fields, or it is the fixed layout"
            )
        if self.pattern:
            parse_pattern(self.pattern)
        if self.time_format:
            parse_time_format(self.time_format)
            if not self.time_names:
                raise ValueError("a line format with a time format lacks its time")
        elif not self.is_fixed and (names := self.time_names):
            raise ValueError(
                f"time_format is missing: say how the text of {' and '.join(names)} is written"
            )
        if self.options.default_level and (self.is_fixed or not self.has_level):
            has = "the fixed layout always have a" if self.is_fixed else "this format never have a"
            raise ValueError(f"default_level: lines of {has} level: leave it out")
        for accepted, does_something, of in (
            (Accepted.BLANKS, not self.is_fixed, "a pattern or JSON"),
            (Accepted.EXPONENT, self.states_instant, "a number since 1970"),
            (Accepted.NAN, self.is_json, "JSON"),
        ):
            if accepted in self.options and not does_something:
                raise ValueError(f'accept: "{accepted}" is for lines with {of}: leave it out')

    @property
    def is_fixed(self) -> bool:
        """Whether this is the fixed layout, which is read by byte positions."""
        return not self.pattern and not self.is_json

    @property
    def has_time(self) -> bool:
        """Whether its lines have a time."""
        return self.is_fixed or bool(self.time_format)

    @property
    def states_instant(self) -> bool:
        """Whether its lines have a number since 1970 for a time."""
        return bool(self.time_format) and self.parsed_time_format.is_epoch

    @property
    def lacks_year(self) -> bool:
        """Whether its lines have a time without a year."""
        return bool(self.time_format) and not self.parsed_time_format.has_year

    @property
    def time_names(self) -> tuple[str, ...]:
        """The groups or fields that make the time: ``time``, or ``date`` and ``clock``."""
        return time_names(self._names)

    @property
    def last_time_name(self) -> str:
        """The group of the time that ends last, so that an offset follows it.

        The clock where the date is looked ahead for, which does not show their order. Only for a
        pattern with a time.
        """
        pattern = self.parsed_pattern
        for part in pattern.parts.branches[0]:
            if isinstance(part, Group) and part.is_ahead and f"<{DATE}>" in part.text:
                return self.time_names[-1]
        return max(self.time_names, key=pattern.ends.__getitem__)

    @property
    def is_json(self) -> bool:
        """Whether each record is one JSON document."""
        return bool(self.json_fields)

    @property
    def parsed_pattern(self) -> LinePattern:
        """The pattern in Java's and Python's spelling. Not for the other kinds."""
        return parse_pattern(self.pattern)

    def match(self, line: bytes) -> re.Match[str] | None:
        """The match of what the pattern sees of a line."""
        return self.parsed_pattern.match(line, any_blank=Accepted.BLANKS in self.options)

    @property
    def parsed_time_format(self) -> TimeFormat:
        """The time format, taken apart. Not for the fixed layout and lines without a time."""
        return parse_time_format(self.time_format)

    @property
    def fields(self) -> tuple[str, ...]:
        """What a line of this format has besides its time: fields for labels and filters."""
        return tuple(name for name in self._names if name not in self.time_names)

    @property
    def _names(self) -> tuple[str, ...]:
        if self.is_fixed:
            return (TIME, LEVEL)
        if self.is_json:
            return tuple(self.json_fields)
        return self.parsed_pattern.groups

    def has_field(self, name: str) -> bool:
        """Whether a label or a filter may name it. JSON lines have a field for any path."""
        return name not in self.time_names if self.is_json else name in self.fields

    def paths_of(self, name: str) -> tuple[JsonPath, ...]:
        """Where JSON lines have a field: as it is declared, else where its name leads as a path.

        Raises:
            ValueError: It is not declared, and its name is no path.
        """
        return self.json_fields[name] if name in self.json_fields else parse_path(name)

    @property
    def has_level(self) -> bool:
        """Whether its lines have a level."""
        return LEVEL in self.fields

    @property
    def known_levels(self) -> tuple[str, ...]:
        """All levels that its lines can have; empty where any may stand."""
        return self.levels or tuple(dict.fromkeys(self.level_names.values()))

    def printed_levels(self, levels: Sequence[str]) -> tuple[str, ...]:
        """What a line prints when it is at one of ``levels``, sorted; '' for the default level.

        Raises:
            ValueError: One of ``levels`` is not a level that the producer prints, or cannot stand
                in its lines, so it would silently count nothing.
        """
        wanted = set(levels)
        if wanted and not self.has_level:
            lacks = "JSON fields lack level" if self.is_json else "pattern has no group (?<level>…)"
            raise ValueError(
                f"the {lacks}: add one, or set levels = [] to count lines whatever their level"
            )
        known, default, printed = self.known_levels, self.options.default_level, wanted
        if known and (unknown := sorted(wanted - set(known))):
            raise ValueError(
                f"{', '.join(unknown)}: not a level of {self.name}; it has {', '.join(known)}"
            )
        if self.level_names:
            printed = {word for word, level in self.level_names.items() if level in wanted}
        elif misfits := [w for w in sorted(wanted - {default}) if not self._has_room_for(w)]:
            raise ValueError(
                f"{', '.join(misfits)}: cannot stand where {self.name} has its level, "
                f"as in {self.example}"
            )
        return (*([""] if default in wanted else []), *sorted(printed))

    def _has_room_for(self, level: str) -> bool:
        """Whether the example would still be understood if it were at ``level``.

        Nothing is known of a format without an example, and any word fits into the fixed layout and
        into JSON.
        """
        if not (self.pattern and self.example):
            return True
        pattern = self.parsed_pattern.python
        found = pattern.match(self.example)
        if found is None:
            return True
        start, end = found.span(LEVEL)
        changed = pattern.match(self.example[:start] + level + self.example[end:])
        return changed is not None and changed[LEVEL] == level

    def fingerprint(self) -> str:
        """Identifies what the format counts, the same in every process and release.

        Two formats with one fingerprint understand the same lines in the same way; name,
        description, example and the list of levels are no part of it. The reverse is not
        guaranteed.
        """
        if options := self.options.fingerprint():
            return f"{replace(self, options=NO_OPTIONS).fingerprint()} {options}"
        if self.is_fixed:
            return f"fixed:{_MEANING_VERSION}"
        if self.is_json:
            places = sorted(self.json_fields.items())
            return f"json:{_MEANING_VERSION}:{_digest(places, self.time_format)}"
        spelling, levels = self.parsed_pattern.spelling, sorted(self.level_names.items())
        return f"pattern:{_MEANING_VERSION}:{_digest(spelling, self.time_format, levels)}"


def parse_path(path: object) -> tuple[JsonPath, ...]:
    """The places that a path means.

    Args:
        path: A text: the key that is written exactly so, else, with dots, nested keys. Or a list of
            texts: exactly these nested keys.

    Raises:
        ValueError: It is neither, or names a key that cannot be looked up.
    """
    match path:
        case str():
            nested = tuple(path.split("."))
            paths = [(path,), nested] if len(nested) > 1 and all(nested) else [(path,)]
        case list() if path and all(isinstance(key, str) for key in path):
            paths = [tuple(path)]
        case _:
            raise ValueError("a path is a text, or a list of texts that names the nested keys")
    for key in chain.from_iterable(paths):
        if not key:
            raise ValueError("a key must not be empty")
        if "'" in key and '"' in key:
            raise ValueError("a key with both ' and \" in it cannot be looked up")
    return tuple(paths)


def time_names(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the groups or fields that make the time, in order; empty when there are none."""
    for wanted in ((TIME,), (DATE, CLOCK)):
        if set(wanted) <= set(names):
            return wanted
    return ()


def _digest(*meaning: object) -> str:
    return hashlib.sha256(json.dumps(meaning).encode()).hexdigest()[:16]
