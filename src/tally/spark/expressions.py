"""Shared helpers for the columns of line formats."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.options import BLANKS, Accepted, LineOptions


def binary(literal: bytes) -> Column:
    """A literal of type binary."""
    return F.lit(bytearray(literal))


def valid_text(value: Column) -> Column:
    """Bytes as a string of valid UTF-8: Java replaces other bytes in its own way."""
    return F.make_valid_utf8(value.cast("string"))


def usual_blanks(text: Column, options: LineOptions) -> Column:
    """A text in which Unicode's blanks, where the options accept them, are that of ASCII."""
    if Accepted.BLANKS not in options:
        return text
    return F.translate(text, BLANKS, " " * len(BLANKS))


def all_of(conditions: Sequence[Column]) -> Column:
    """Whether all of them hold; at least one is given."""
    return _joined(and_, conditions)


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
