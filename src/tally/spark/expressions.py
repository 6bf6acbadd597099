"""Shared helpers for the columns of line formats."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)


def binary(literal: bytes) -> Column:
    """A literal of type binary."""
    return F.lit(bytearray(literal))


def all_of(conditions: Sequence[Column]) -> Column:
    """Whether all of them hold; at least one is given."""
    return reduce(and_, conditions)


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether one of them holds; at least one is given."""
    return reduce(lambda left, right: left | right, conditions)


def looked_up(word: Column, table: Mapping[str, str]) -> Column:
    """What a table says for a word; null when nothing."""
    entries = [F.lit(text) for entry in table.items() for text in entry]
    return F.try_element_at(F.create_map(*entries), word)
