"""The part of a record's time that its whole group shares.

Calendar and clock are asked once for each distinct key instead of once for each record: a batch
has few minutes and many records. A key is cheap to find and holds all that the minute depends on.
What it does not depend on, digits of seconds and of fractions, is left out and checked for each
record.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.time_format import TimeFormat, TimePart
from tally.spark.expressions import all_of, binary
from tally.spark.stages import Stages
from tally.spark.time_columns import (
    is_normalised,
    is_out_of_range,
    literal_checks,
    minute_of,
    normalised,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeKey:
    """What a record says of its minute, before calendar and clock are asked."""

    of_record: Column
    """A string or a number; null where the record is malformed, whatever they say."""
    minute: Callable[[Column, Stages], Column]
    """From a key its minute, ``YYYY-MM-DD HH:MM:00``; null when there is none. The stages are for
    the frame that has the key."""


def key_by_position(
    text: Column, time_format: TimeFormat, checks: Sequence[Column], *, skip: int = 0
) -> TimeKey:
    """The key of a time that is read by position: its text, without the digits below the minute.

    Args:
        text: Binary, holds the time.
        time_format: How it is written.
        checks: What must hold besides for the record to be well-formed.
        skip: Bytes that stand before it.
    """
    stretches = list(_stretches(time_format, skip))
    pieces = [F.substring(text, part.position, part.width) for part in stretches if part.is_kept]
    key = (pieces[0] if len(pieces) == 1 else F.concat(*pieces)).cast("string")
    digits = [_digit_checks(text, part) for part in stretches if not part.is_kept]
    # What is always evaluated first: Spark shares its parts with other columns.
    conditions = [*checks, *itertools.chain.from_iterable(digits)]
    return TimeKey(
        of_record=F.when(all_of(conditions), key) if conditions else key,
        minute=lambda key, stages: _minute_by_position(key.cast("binary"), time_format, stages),
    )


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes of a text that the key keeps, or that it drops."""

    position: int
    """Where it starts, from 1."""
    width: int
    letters: str = ""
    """The field's, when it is dropped."""

    @property
    def is_kept(self) -> bool:
        return not self.letters


def _stretches(time_format: TimeFormat, skip: int) -> Iterator[_Stretch]:
    """All of a time, in order, where so many bytes stand before it."""
    at = skip + 1
    for part in filter(_is_below_minute, time_format.parts):
        start = part.position + skip
        if start > at:
            yield _Stretch(at, start - at)
        yield _Stretch(start, part.width, part.letters)
        at = start + part.width
    if end := time_format.width + skip + 1 - at:
        yield _Stretch(at, end)


def _is_below_minute(part: TimePart) -> bool:
    return part.letters == "ss" or part.letters.startswith("S")


def _digit_checks(text: Column, part: _Stretch) -> list[Column]:
    """That seconds are 00 to 59, and that a fraction is digits."""
    piece = F.substring(text, part.position, part.width)
    if part.letters != "ss":
        return [piece.cast("string").rlike(rf"\A[0-9]{{{part.width}}}\z")]
    last = F.substring(text, part.position + 1, 1)
    return [
        piece >= binary(b"00"),
        piece <= binary(b"59"),
        last >= binary(b"0"),
        last <= binary(b"9"),
    ]


def _minute_by_position(key: Column, time_format: TimeFormat, stages: Stages) -> Column:
    """The minute of a binary key, with zeros for the digits that it lacks."""
    pieces, at = [], 1
    for part in _stretches(time_format, 0):
        if part.is_kept:
            pieces.append(F.substring(key, at, part.width))
            at += part.width
        else:
            pieces.append(binary(b"0" * part.width))
    text = stages.add(F.concat(*pieces))
    normal = stages.add(normalised(text, time_format))
    checks = [
        F.length(text) == time_format.width,
        *literal_checks(text, time_format),
        is_normalised(normal),
        ~is_out_of_range(normal),
    ]
    return F.when(all_of(checks), minute_of(normal))
