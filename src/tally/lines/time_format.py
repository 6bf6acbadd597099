"""Time formats: where the fields of a line's time stand.

A small part of Java's ``DateTimeFormatter`` vocabulary, chosen so that every field has a fixed
width: a time can then be taken apart by position, without a parser and without a time zone.
"""

import re
from dataclasses import dataclass
from typing import Final

FIELD_WIDTHS: Final = {
    "yyyy": 4,
    "yy": 2,
    "MM": 2,
    "MMM": 3,
    "dd": 2,
    "HH": 2,
    "hh": 2,
    "a": 2,
    "mm": 2,
    "ss": 2,
    "EEE": 3,
}
"""Every field but the fraction of a second, ``S`` to ``SSSSSSSSS``, and its width in bytes."""

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""``MMM``: English, in this spelling."""

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
"""``EEE``: English, in this spelling; not compared with the date."""

_ALLOWED = "allowed are yyyy yy MM MMM dd HH hh+a mm ss S… EEE and quoted or punctuation literals"
_NO_YEAR = (
    "has no year (yyyy or yy): which year's minute a line belongs to would be a guess, and a wrong "
    "one around New Year. Have the program or the log shipper print the year, for example as "
    "yyyy-MM-dd HH:mm:ss or by syslog's RFC 5424"
)
_HINTS: Final = {
    "Y": "Y is the year of the week calendar: write yyyy",
    "u": "write yyyy for the year",
    "D": "D is the day of the year: write dd",
    "n": "write S for a fraction of a second",
    "A": "write S for a fraction of a second",
    "k": "write HH for the hour from 00 to 23",
    "K": "write hh and a, or HH",
} | dict.fromkeys(
    "XxZzVO",
    "leave the zone out of the group time: log_time is the wall clock as the line prints it",
)
_RESERVED = "[]{}#"
_QUOTED = re.compile(r"'((?:[^']|'')+)'", re.DOTALL)
_KIND: Final = {"yy": "yyyy", "MMM": "MM"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimePart:
    """One field or one literal of a time format."""

    letters: str
    """The field's letters; empty for a literal."""
    literal: str
    """The literal's text; empty for a field."""
    position: int
    """Where the part starts, from 1 as in SQL's ``substring``."""
    width: int
    """How many bytes it takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeFormat:
    """A time format taken apart. Build it with :func:`parse_time_format`."""

    text: str
    """As it was written."""
    parts: tuple[TimePart, ...]
    """Its fields and literals, from left to right, without gaps."""
    width: int
    """How many bytes a time in this format takes."""


def parse_time_format(text: str) -> TimeFormat:
    """Take a time format apart.

    Raises:
        ValueError: The format uses letters outside the vocabulary, names a field twice, or does
            not fix the minute. The message is a clause that follows the format's name.
    """
    parts: list[TimePart] = []
    position = 1
    for letters, literal in _tokens(text):
        width = len(literal) or _field_width(letters)
        parts.append(TimePart(letters=letters, literal=literal, position=position, width=width))
        position += width
    time_format = TimeFormat(text=text, parts=tuple(parts), width=position - 1)
    _check_fields(time_format)
    return time_format


def _tokens(text: str) -> list[tuple[str, str]]:
    """Pairs of (field letters, literal text), one of the two empty."""
    tokens: list[tuple[str, str]] = []
    rest = text
    while rest:
        if not " " <= rest[0] <= "~":
            raise ValueError(f"holds {rest[0]!r}; only printable ASCII characters are allowed")
        if rest[0].isalpha():
            letters = rest[: len(rest) - len(rest.lstrip(rest[0]))]
            tokens.append((letters, ""))
            rest = rest[len(letters) :]
        elif rest[0] == "'":
            literal, rest = _quoted(rest)
            tokens.append(("", literal))
        elif rest[0] in _RESERVED:
            raise ValueError(f"holds {rest[0]!r}, which Java reserves: put it into single quotes")
        else:
            tokens.append(("", rest[0]))
            rest = rest[1:]
    return tokens


def _quoted(text: str) -> tuple[str, str]:
    """The literal that a leading quote opens, and what follows it; ``''`` is one quote."""
    if text.startswith("''"):
        return "'", text[2:]
    found = _QUOTED.match(text)
    if not found:
        raise ValueError("opens a quote that is never closed")
    literal = found[1].replace("''", "'")
    if any(not " " <= character <= "~" for character in literal):
        raise ValueError(f"quotes {literal!r}; only printable ASCII characters are allowed")
    return literal, text[found.end() :]


def _field_width(letters: str) -> int:
    if letters[0] == "S" and len(letters) <= 9:
        return len(letters)
    if letters not in FIELD_WIDTHS:
        hint = _HINTS.get(letters[0]) or (
            f"write {letters * 2}: fields have a fixed width"
            if letters * 2 in FIELD_WIDTHS
            else _ALLOWED
        )
        raise ValueError(f"holds {letters!r}, which is not supported; {hint}")
    return FIELD_WIDTHS[letters]


def _check_fields(time_format: TimeFormat) -> None:
    written = [part.letters for part in time_format.parts if part.letters]
    if not {"yyyy", "yy"} & set(written):
        raise ValueError(_NO_YEAR)
    for noun, names in (("month", ("MM", "MMM")), ("day", ("dd",)), ("minute", ("mm",))):
        if not set(names) & set(written):
            raise ValueError(f"has no {noun} ({' or '.join(names)}), so it fixes no minute")
    _check_hour(written)
    kinds = ["S" if letters[0] == "S" else _KIND.get(letters, letters) for letters in written]
    twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
    if twice:
        raise ValueError(f"names a field twice: {', '.join(twice)}")


def _check_hour(written: list[str]) -> None:
    twelve, marker = "hh" in written, "a" in written
    if "HH" not in written and not twelve:
        raise ValueError("has no hour (HH, or hh with a), so it fixes no minute")
    if "HH" in written and (twelve or marker):
        raise ValueError("mixes HH with hh or a: write HH alone, or hh with a")
    if twelve and not marker:
        raise ValueError(
            "has a 12-hour clock (hh) without the marker a (AM or PM): two minutes of every day "
            "would be one. Write HH if the clock has 24 hours"
        )
