"""Time formats: where the fields of a line's time stand.

A small part of Java's ``DateTimeFormatter`` vocabulary. Where every field has a fixed width a time
is taken apart by position; else a regular expression finds its fields. Besides, a time may be the
seconds, milliseconds, microseconds or nanoseconds since 1970.
"""

import itertools
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

UNPADDED: Final = ("M", "d", "H", "h", "m", "s")
"""Fields of one or two digits."""

BLANK_PADDED: Final = ("ppM", "ppd", "ppH", "pph")
"""Fields of two digits, or of a blank and a digit."""

EPOCHS: Final = {
    "epoch_seconds": 1,
    "epoch_milliseconds": 1_000,
    "epoch_microseconds": 1_000_000,
    "epoch_nanoseconds": 1_000_000_000,
}
"""Time formats that are numbers: how many units a second has. A decimal fraction may follow."""

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""``MMM``: English, in this spelling."""

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
"""``EEE``: English, in this spelling; not compared with the date."""

_PADDED: Final = ("yyyy", "yy", "MM", "dd", "HH", "hh", "mm", "ss")
_FIELDS: Final[Mapping[str, tuple[int, str]]] = {
    **{letters: (len(letters), f"([0-9]{{{len(letters)}}})") for letters in _PADDED},
    **dict.fromkeys(UNPADDED, (0, "([0-9]{1,2})")),
    **dict.fromkeys(BLANK_PADDED, (2, "( [0-9]|[0-9]{2})")),
    **{"S" * digits: (digits, f"[0-9]{{{digits}}}") for digits in range(1, 10)},
    "MMM": (3, "([A-Z][a-z]{2})"),
    "EEE": (3, f"(?:{'|'.join(WEEKDAYS)})"),
    "a": (2, "([AP]M|[ap]m)"),
}
"""By the letters of a field its width in bytes, 0 when that depends on the time, and its shape as
a regular expression of Java and Python: a group for what is read, not only checked."""

_ALLOWED = (
    "allowed are yyyy yy MM MMM M dd d HH H hh+a h+a mm m ss s S… EEE, ppd and the like for fields "
    f"padded with a blank, quoted or punctuation literals, or {', '.join(EPOCHS)}"
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
    "leave the zone out of the group time: log_time is the wall clock as the line prints it, or "
    'with time = "instant" that of time_zone, by the offset behind the time',
)
_RESERVED = "[]{}#"
_TOKEN = re.compile(
    r"(?P<letters>(?:pp(?=[A-Za-z]))?([A-Za-z])\2*)|'(?P<one>')|'(?P<quoted>(?:[^']|'')+)'"
    r"|(?P<other>.)"
)
"""A field, with ``pp`` before what it pads; a quote, which is written twice; a quoted literal; or
any other character."""
NORMAL: Final = "yyyy-MM-dd HH:mm:ss"
"""The format of normalised times; it has as many characters as they have."""
_KIND: Final = {"yy": "yyyy", "MMM": "MM"}
_NEEDED: Final = {"month": ("MM", "MMM"), "day": ("dd",), "hour": ("HH", "hh"), "minute": ("mm",)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimePart:
    """One field or one literal of a time format."""

    letters: str
    """The field's letters; empty for a literal."""
    literal: str
    """The literal's text; empty for a field."""
    position: int
    """Where the part starts, from 1 as in SQL's ``substring``; 0 after a part without a width."""
    width: int
    """How many bytes it takes; 0 when that depends on the time."""

    @property
    def kind(self) -> str:
        """The letters of the padded field that says the same: ``dd`` for ``d`` and ``ppd``."""
        letters = self.letters.removeprefix("pp")
        return letters * 2 if letters in UNPADDED else letters

    @property
    def is_read(self) -> bool:
        """Whether the minute follows from it; weekday and fraction are only checked."""
        return bool(self.letters) and self.letters[0] not in "ES"

    @property
    def shape(self) -> str:
        """A regular expression of Java and Python; a field that is read is a group."""
        if self.letters:
            return _FIELDS[self.letters][1]
        return "".join(c if c.isalnum() else rf"\{c}" for c in self.literal)

    @property
    def chars(self) -> list[frozenset[str] | None]:
        """For each of its bytes, if it has a width, the characters that may stand there.

        None for any character, as names are not spelled out.
        """
        if self.literal:
            return [frozenset(char) for char in self.literal]
        is_number = self.letters not in {"EEE", "MMM", "a", *BLANK_PADDED}
        return [frozenset(string.digits) if is_number else None] * self.width


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeFormat:
    """A time format taken apart. Build it with :func:`parse_time_format`."""

    text: str
    """As it was written."""
    parts: tuple[TimePart, ...]
    """Its fields and literals, from left to right, without gaps."""
    width: int
    """How many bytes a time in this format takes; 0 when that depends on the time."""
    per_second: int = 0
    """For a number since 1970: how many of its units a second has; 0 for a written time."""

    @property
    def is_epoch(self) -> bool:
        """Whether it is a number since 1970, which states an instant; else it is a wall clock."""
        return self.per_second > 0

    @property
    def digits_max(self) -> int:
        """How many digits a number since 1970 may have: 64 bits hold more of none."""
        return 19 if self.text == "epoch_nanoseconds" else 18

    @property
    def has_year(self) -> bool:
        """Whether the year is known without asking anybody else."""
        return self.is_epoch or bool({"yyyy", "yy"} & set(self.letters))

    @property
    def is_read_by_position(self) -> bool:
        """Whether every field has its place and its year."""
        return self.width > 0 and self.has_year and not set(self.letters) & set(BLANK_PADDED)

    @property
    def is_normal(self) -> bool:
        """Whether a time starts as :data:`NORMAL` is written."""
        return self.text.startswith(NORMAL)

    @property
    def chars(self) -> list[frozenset[str] | None]:
        """For each byte of a time of a fixed width, the characters that may stand there."""
        return [chars for part in self.parts for chars in part.chars]

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of all fields, as they are written."""
        return tuple(part.letters for part in self.parts if part.letters)

    @property
    def shape(self) -> str:
        """A regular expression of Java and Python for a whole written time."""
        return "".join(part.shape for part in self.parts)


def parse_time_format(text: str) -> TimeFormat:
    """Take a time format apart.

    A format without a year is one: see :mod:`tally.lines.time_rule`.

    Raises:
        ValueError: The format uses letters outside the vocabulary, names a field twice, does not
            fix the minute, or has a field whose end cannot be determined. The message is a clause
            that follows the format's name.
    """
    if text in EPOCHS:
        return TimeFormat(text=text, parts=(), width=0, per_second=EPOCHS[text])
    if strftime := re.search("%[A-Za-z]", text):
        raise ValueError(
            f"holds {strftime[0]!r}: write Java's letters, such as yyyy-MM-dd HH:mm:ss"
        )
    if odd := re.search("[^ -~]", text):
        raise ValueError(f"holds {odd[0]!r}; only printable ASCII characters are allowed")
    parts: list[TimePart] = []
    position = 1
    for found in _TOKEN.finditer(text):
        letters = found["letters"] or ""
        literal = "" if letters else _literal(found)
        width = _width(letters) if letters else len(literal)
        parts.append(TimePart(letters=letters, literal=literal, position=position, width=width))
        position = position + width if position and width else 0
    time_format = TimeFormat(text=text, parts=tuple(parts), width=max(position - 1, 0))
    _check_fields(time_format)
    _check_borders(time_format)
    return time_format


def _width(letters: str) -> int:
    if letters not in _FIELDS:
        hint = _HINTS.get(letters[0], _ALLOWED)
        raise ValueError(f"holds {letters!r}, which is not supported; {hint}")
    return _FIELDS[letters][0]


def _literal(found: re.Match[str]) -> str:
    if found["other"] == "'":
        raise ValueError("opens a quote that is never closed")
    if (found["other"] or " ") in _RESERVED:
        raise ValueError(f"holds {found[0]!r}, which Java reserves: put it into single quotes")
    return found["one"] or found["other"] or found["quoted"].replace("''", "'")


def _check_fields(time_format: TimeFormat) -> None:
    """The fields fix one minute, and no two of them say the same."""
    kinds = [part.kind for part in time_format.parts if part.letters]
    for noun, names in _NEEDED.items():
        if not set(names) & set(kinds):
            raise ValueError(f"has no {noun} ({' or '.join(names)}), so it fixes no minute")
    if "HH" in kinds and {"hh", "a"} & set(kinds):
        raise ValueError("mixes HH with hh or a: write HH alone, or hh with a")
    if "hh" in kinds and "a" not in kinds:
        raise ValueError(
            "has a 12-hour clock (hh) without the marker a (AM or PM): two minutes of every day "
            "would be one. Write HH if the clock has 24 hours"
        )
    same = ["S" if kind[0] == "S" else _KIND.get(kind, kind) for kind in kinds]
    if twice := sorted({kind for kind in same if same.count(kind) > 1}):
        raise ValueError(f"names a field twice: {', '.join(twice)}")


def _check_borders(time_format: TimeFormat) -> None:
    """A field without a width must end where no digit follows."""
    for part, behind in itertools.pairwise(time_format.parts):
        runs_on = behind.literal[:1].isdigit() or (
            behind.letters and behind.letters not in {"MMM", "EEE", "a"}
        )
        if not part.width and runs_on:
            raise ValueError(
                f"has {part.letters}, which has one or two digits, right before "
                f"{behind.letters or behind.literal!r}: where one ends and the other begins would "
                f"be a guess. Write {part.letters * 2} if it has two digits"
            )
