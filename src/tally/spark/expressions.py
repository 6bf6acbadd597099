"""Shared helpers for the columns of line formats."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import and_, or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.format import Accepted, LineOptions
from tally.lines.pattern import BLANKS
from tally.lines.redaction import REPLACEMENT

_BYTE_BY_BYTE: Final = "ISO-8859-1"

REPLACED: Final = "\ufffd"
"""What stands in a text in place of bytes that are no UTF-8."""


def binary(literal: bytes) -> Column:
    """A literal of type binary."""
    return F.lit(bytearray(literal))


def valid_text(value: Column) -> Column:
    """Bytes as a string of valid UTF-8: Java replaces other bytes in its own way."""
    return F.make_valid_utf8(value.cast("string"))


def redacted_text(text: Column, pattern: str) -> Column:
    """A string in which each match of a pattern for Java is replaced; '' stands for none."""
    return F.regexp_replace(text, pattern, REPLACEMENT) if pattern else text


def redacted(value: Column, pattern: str) -> Column:
    """The same for bytes, each of which is one character to the pattern."""
    if not pattern:
        return value
    text = redacted_text(F.decode(value, _BYTE_BY_BYTE), pattern)
    return F.encode(text, _BYTE_BY_BYTE)


def usual_blanks(text: Column, options: LineOptions) -> Column:
    """A text in which Unicode's blanks, where the options accept them, are that of ASCII."""
    if Accepted.BLANKS not in options:
        return text
    return F.translate(text, BLANKS, " " * len(BLANKS))


def all_of(conditions: Iterable[Column]) -> Column:
    """Whether all of them hold; at least one is given."""
    return _joined(and_, list(conditions))


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether one of them holds; at least one is given."""
    return _joined(or_, list(conditions))


def _joined(join: Callable[[Column, Column], Column], parts: Sequence[Column]) -> Column:
    """The parts in a tree of little depth: Spark walks it by recursion."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return join(_joined(join, parts[:middle]), _joined(join, parts[middle:]))


def looked_up(word: Column, table: Mapping[str, str]) -> Column:
    """What a table says for a word; null when nothing."""
    entries = [F.lit(text) for entry in table.items() for text in entry]
    return F.try_element_at(F.create_map(*entries), word)


def matches_value(text: Column, value: str) -> Column:
    """Whether a field is a value of a filter.

    Args:
        text: String, valid UTF-8, not null.
        value: As configured.
    """
    value = _simplified(value)
    between = [part for part in value.split("*") if part]
    if len(between) <= 1 or value.count("*") == 1:  # Spark compares these without a pattern
        return text.like(re.sub(r"([\\%_])", r"\\\1", value).replace("*", "%"))
    return text.rlike(wildcard_pattern(value))


def wildcard_pattern(value: str) -> str:
    """A pattern for Java's matcher, which looks at a text once for each part of the value.

    Each part is found at its first place behind the one before, and the matcher never comes back
    to try a later one: if the rest fails behind the first place, it fails behind all.
    """
    first, *middle, last = map(_quoted, _simplified(value).split("*"))
    return rf"(?s)\A{first}{''.join(f'(?>.*?{part})' for part in middle)}.*{last}\z"


def _simplified(value: str) -> str:
    return re.sub(r"\*+", "*", value)


def _quoted(part: str) -> str:
    """Escaped for Java: a backslash may stand before anything but a letter or a digit."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", part)


class Stages:
    """Columns that are used many times.

    Spark shares equal expressions only where each is certain to be evaluated, and it compiles a
    plan only up to some size; beyond that it evaluates each use by itself. A large expression that
    stands many times in one that stands many times is then evaluated hundreds of times for each
    record. What is added here becomes a column of a projection of its own, which Spark does not
    join with the next one as long as it is used more than once.
    """

    def __init__(self) -> None:
        self._columns: list[Column] = []

    def add(self, column: Column) -> Column:
        """Compute a column beforehand; it may use those that were added before.

        Returns:
            The column as :meth:`Stages.select` may use it.
        """
        name = f"tally_stage_{len(self._columns)}"
        self._columns.append(column.alias(name))
        return F.col(name)

    def select(self, frame: DataFrame, *columns: Column | str) -> DataFrame:
        """Columns of the frame, which may use those that were added so far."""
        for column in self._columns:
            frame = frame.select("*", column)
        return frame.select(*columns)
