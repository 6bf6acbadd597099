"""What of a line is never stored: patterns, each match of which is replaced."""

import functools
import re
from collections.abc import Sequence
from typing import Final

from tally.lines.backtracking import Group, Part, Repeated, Taken, check_ways
from tally.lines.format import LineFormat
from tally.lines.pattern import HEAD_BYTES, parse_pattern

REPLACEMENT: Final = "***"
"""What stands in place of a match."""
LONGEST: Final = 1_024
"""Characters that a pattern may look at beyond where it begins: it is looked for at each byte."""
_WAYS_MAX: Final = 4_096


@functools.cache
def parse_redaction(text: str) -> str:
    r"""Check a pattern, such as ``\d{13,19}``, and write it down for ``java.util.regex``.

    To it, each byte of a line is one character.

    Raises:
        ValueError: It is no pattern (:func:`tally.lines.pattern.parse_pattern`), could look at much
            of a line from each of its bytes, or takes nothing. The message is a clause that follows
            the pattern's name.
    """
    if not text.isascii():
        raise ValueError("holds characters that are no ASCII: it is compared with bytes")
    if not text:
        raise ValueError("is empty")
    pattern = parse_pattern(text)
    if pattern.groups:
        raise ValueError(
            f"names a group, {pattern.groups[0]!r}: all patterns are looked for as one"
        )
    check_ways(pattern.parts, _WAYS_MAX)
    if not _shortest(pattern.parts):
        raise ValueError("takes no character of some text, where there is nothing to replace")
    if (longest := max(map(_looks_at, pattern.parts.branches))) > LONGEST:
        raise ValueError(
            f"may look at {longest:,} characters from each byte of a line, and {LONGEST:,} is the "
            r"most: give each repeat a bound, for example {1,64} instead of +. At the end of a "
            r"pattern a possessive one needs none: \d{13}\d*+"
        )
    return pattern.java


def redacted(text: str, patterns: Sequence[str]) -> str:
    """A text in which each match of some patterns is replaced, as Spark does it.

    No match goes over the end of a line.
    """
    one = _compiled(tuple(patterns))
    return re.sub(r"[^\r\n]+", lambda line: one.sub(REPLACEMENT, line[0]), text)


def cut_fields(line_format: LineFormat, value: bytes) -> frozenset[str]:
    """The fields of a record that may go on where a pattern sees no more of a long line."""
    line = line_format.options.line_of(value)
    if line_format.is_fixed or line_format.is_json or len(line) <= HEAD_BYTES:
        return frozenset()
    match = line_format.match(line)
    if match is None or re.search(b"[\r\n]", line[:HEAD_BYTES]):
        return frozenset()
    return frozenset(
        n for n, of in match.groupdict().items() if of and match.end(n) == len(match.string)
    )


@functools.cache
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    whole = (parse_pattern(pattern).python.pattern for pattern in patterns)
    cases = (("(?i:", one[4:]) if one.startswith("(?i)") else ("(?:", one) for one in whole)
    return re.compile("|".join(f"{begin}{one})" for begin, one in cases), re.ASCII)


def _looks_at(branch: list[Part]) -> int:
    """Over how many characters a sequence goes before it fails.

    A possessive repeat of single characters at its end does not: behind it nothing fails, and what
    it takes is looked at once.
    """
    *before, last = branch or [Group()]
    is_end = isinstance(last, Repeated) and last.is_possessive and isinstance(last.part, Taken)
    return sum(map(_longest, before if is_end else branch))


def _longest(part: Part) -> int:
    """How many characters the longest text has that a part takes, or looks ahead at."""
    match part:
        case Group():
            return max(sum(map(_longest, branch)) for branch in part.branches)
        case Repeated():
            return part.most * _longest(part.part)
        case _:
            return 1


def _shortest(part: Part) -> int:
    """How many characters the shortest text has that a part takes."""
    match part:
        case Group(is_ahead=True):
            return 0
        case Group():
            return min(sum(map(_shortest, branch)) for branch in part.branches)
        case Repeated():
            return part.least * _shortest(part.part)
        case Taken():
            return int(bool(part.chars))
