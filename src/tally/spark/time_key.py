"""The part of a record's time that its whole group shares.

Calendar and clock are asked once for each distinct key instead of once for each record: a batch
has few minutes and many records. A key is cheap to find and holds all that the minute depends on.
What it does not depend on, the last digit of the seconds and those of a fraction, is left out and
checked for each record. The first digit of the seconds stays: six keys for each minute cost less
than two more comparisons for each record.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.time_format import TimeFormat
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
    """The key of a time that is read by position: its text, without what the minute does not need.

    Args:
        text: Binary, holds the time.
        time_format: How it is written.
        checks: What must hold besides for the record to be well-formed.
        skip: Bytes that stand before it.
    """
    stretches = list(_stretches(time_format, skip))
    pieces = [F.substring(text, part.position, part.width) for part in stretches if part.is_kept]
    key = (pieces[0] if len(pieces) == 1 else F.concat(*pieces)).cast("string")
    digits = [_are_digits(text, part) for part in stretches if not part.is_kept]
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
    is_kept: bool = True


def _stretches(time_format: TimeFormat, skip: int) -> Iterator[_Stretch]:
    """All of a time, in order, where so many bytes stand before it."""
    at = skip + 1
    for part in time_format.parts:
        if part.letters == "ss":
            dropped = _Stretch(part.position + skip + 1, 1, is_kept=False)
        elif part.letters.startswith("S"):
            dropped = _Stretch(part.position + skip, part.width, is_kept=False)
        else:
            continue
        if dropped.position > at:
            yield _Stretch(at, dropped.position - at)
        yield dropped
        at = dropped.position + dropped.width
    if end := time_format.width + skip + 1 - at:
        yield _Stretch(at, end)


def _are_digits(text: Column, part: _Stretch) -> list[Column]:
    """That all bytes of a stretch are digits."""
    piece = F.substring(text, part.position, part.width)
    if part.width > 1:
        return [piece.cast("string").rlike(rf"\A[0-9]{{{part.width}}}\z")]
    return [piece >= binary(b"0"), piece <= binary(b"9")]


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
