"""A record taken apart: what each kind of line format makes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.format import MalformedReason
from tally.spark.time_columns import TimeColumns, minute_of
from tally.spark.time_key import TimeKey


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedLine:
    """What is said of a record by itself."""

    reason: Column
    """Why it is malformed; null when it is not."""
    well_formed: Column
    """Whether it is understood."""
    time: Column
    """Binary, starts with the normalised time."""

    @property
    def minute(self) -> Column:
        """The minute of a well-formed record, ``YYYY-MM-DD HH:MM:00``."""
        return minute_of(self.time)

    @property
    def time_key(self) -> TimeKey:
        """Its minute, for want of what is found with less work."""
        return TimeKey(of_record=F.when(self.well_formed, self.minute), minute=lambda key, _: key)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedLine:
    """A record taken apart. What is not asked for is not built: each column takes its time."""

    judged: Callable[[], JudgedLine]
    """What is said of it by itself."""
    time_key: Callable[[], TimeKey]
    """What its group is judged by; null for a record without a level where one is needed."""
    is_at: Callable[[Sequence[str]], Column]
    """Whether the line is at one of some levels, as printed."""
    fields: Callable[[str], Column]
    """A field of the line as a string; '' or null when it has none."""


def why_malformed(
    value: Column, *, well_formed: Column, no_match: Column, time: TimeColumns
) -> Column:
    """The first reason that applies; null when the record is well-formed.

    Args:
        value: The record.
        well_formed: Whether it is understood.
        no_match: Whether the line format does not match at all.
        time: When it was written.
    """
    return (
        F.when(well_formed, F.lit(None))
        .when(value.isNull(), MalformedReason.NULL_VALUE.value)
        .when(F.length(value) == 0, MalformedReason.EMPTY_VALUE.value)
        .when(no_match, MalformedReason.NO_MATCH.value)
        .when(time.is_missing, MalformedReason.NO_TIME.value)
        .when(~F.coalesce(time.exists, F.lit(False)), MalformedReason.TIME_INVALID.value)
        .when(~time.in_range, MalformedReason.TIME_OUT_OF_RANGE.value)
        .otherwise(MalformedReason.NO_LEVEL.value)
    )
