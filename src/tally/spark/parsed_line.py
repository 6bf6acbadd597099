"""A record taken apart: what each kind of line format answers, and what follows for all of them.

Records are grouped by a key of their time. Calendar and clock are asked once for each distinct key
instead of once for each record: a batch has few minutes and many records.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.format import LineFormat, MalformedReason
from tally.lines.time_format import TimeFormat
from tally.spark.expressions import Stages, all_of, binary
from tally.spark.time_columns import (
    TimeColumns,
    TimeReader,
    is_normalised,
    is_out_of_range,
    literal_checks,
    minute_of,
    normalised,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeKey:
    """The part of a record's time that its whole group shares."""

    of_record: Column
    """A string; null where the record is malformed, whatever calendar and clock say."""
    minute: Callable[[Column, Stages], Column]
    """From a key its minute, ``YYYY-MM-DD HH:MM:00``; null when there is none. The stages are for
    the frame that has the key."""


@dataclass(kw_only=True, eq=False)
class ParsedLine(ABC):
    """A record taken apart. What is not asked for is not built: each column takes its time."""

    value: Column
    """Binary column with the record's bytes."""
    line_format: LineFormat
    """How it is written."""
    times: TimeReader
    """How the minute follows."""
    levels: Sequence[str]
    """Levels that are counted, as printed; empty for any."""

    @abstractmethod
    def __post_init__(self) -> None:
        """Prepare what several answers need."""

    @abstractmethod
    def stated_time(self) -> TimeColumns:
        """When the line says that it was written."""

    @abstractmethod
    def no_match(self) -> Column:
        """Whether the line format does not match at all."""

    @abstractmethod
    def is_line(self) -> list[Column]:
        """What must hold of a well-formed record besides time and level."""

    @abstractmethod
    def has_level(self) -> Column:
        """Whether the line has a level."""

    @abstractmethod
    def is_at_level(self) -> Column:
        """Whether the line is at one of the levels."""

    @abstractmethod
    def field(self, name: str) -> Column:
        """A field of the line as a string; '' or null when it has none."""

    @abstractmethod
    def is_written_so(self, text: Column) -> Column:
        """Whether no other value of a field reads like this text."""

    def level_checks(self) -> list[Column]:
        """That there is a level, where one is needed."""
        needs_level = self.levels and not self.line_format.options.default_level
        return [self.has_level()] if needs_level else []

    @cached_property
    def time(self) -> TimeColumns:
        """When it was written, by the rule."""
        return self.times.of_record() if self.times.rule.from_record else self.stated_time()

    @cached_property
    def well_formed(self) -> Column:
        """Whether the record is understood."""
        time = self.time
        return all_of([*self.is_line(), time.exists, time.in_range, *self.level_checks()])

    @property
    def minute(self) -> Column:
        """The minute of a well-formed record, ``YYYY-MM-DD HH:MM:00``."""
        return minute_of(self.time.normal)

    @cached_property
    def malformed_reason(self) -> Column:
        """The first reason that applies; null when the record is well-formed."""
        time, value = self.time, self.value
        return (
            F.when(self.well_formed, F.lit(None))
            .when(value.isNull(), MalformedReason.NULL_VALUE.value)
            .when(F.length(value) == 0, MalformedReason.EMPTY_VALUE.value)
            .when(self.no_match(), MalformedReason.NO_MATCH.value)
            .when(time.is_missing, MalformedReason.NO_TIME.value)
            .when(~F.coalesce(time.exists, F.lit(False)), MalformedReason.TIME_INVALID.value)
            .when(~time.in_range, MalformedReason.TIME_OUT_OF_RANGE.value)
            .otherwise(MalformedReason.NO_LEVEL.value)
        )

    def minute_key(self) -> TimeKey:
        """The minute itself, for which each record is judged by itself."""
        return TimeKey(of_record=F.when(self.well_formed, self.minute), minute=lambda key, _: key)

    def time_key(self) -> TimeKey:
        """What is found with the least work; null without a level where one is needed."""
        return self.minute_key()


def key_by_position(
    text: Column, time_format: TimeFormat, checks: Sequence[Column], *, skip: int = 0
) -> TimeKey:
    """The key of a time that is read by position: its text, with zeros for what no minute needs.

    That is the last digit of the seconds, and those of a fraction. The first digit of the seconds
    stays: six keys for each minute cost less than two more comparisons for each record.

    Args:
        text: Binary, holds the time.
        time_format: How it is written.
        checks: What must hold besides for the record to be well-formed.
        skip: Bytes that stand before it.
    """
    pieces: list[Column] = []
    digits: list[Column] = []
    at = 1
    for part in time_format.parts:
        if part.letters != "ss" and not part.letters.startswith("S"):
            continue
        end = part.position + part.width
        dropped = end - 1 if part.letters == "ss" else part.position
        if dropped > at:
            pieces.append(F.substring(text, at + skip, dropped - at))
        pieces.append(binary(b"0" * (end - dropped)))
        digits += _are_digits(F.substring(text, dropped + skip, end - dropped), end - dropped)
        at = end
    if rest := time_format.width + 1 - at:
        pieces.append(F.substring(text, at + skip, rest))
    elif digits:
        del pieces[-1]  # zeros at the end are added to each key, not to each record

    def minute(key: Column, stages: Stages) -> Column:
        time = key.cast("binary")
        if digits and not rest:
            time = F.rpad(time, time_format.width, binary(b"0"))
        time = stages.add(time)
        normal = stages.add(normalised(time, time_format))
        exists = [
            F.length(time) == time_format.width,
            *literal_checks(time, time_format),
            is_normalised(normal),
            ~is_out_of_range(normal),
        ]
        return F.when(all_of(exists), minute_of(normal))

    key = (pieces[0] if len(pieces) == 1 else F.concat(*pieces)).cast("string")
    # What is always evaluated first: Spark shares its parts with other columns.
    conditions = [*checks, *digits]
    return TimeKey(of_record=F.when(all_of(conditions), key) if conditions else key, minute=minute)


def _are_digits(piece: Column, width: int) -> list[Column]:
    if width > 1:
        return [piece.cast("string").rlike(rf"\A[0-9]{{{width}}}\z")]
    return [piece >= binary(b"0"), piece <= binary(b"9")]
