r"""Line formats as Spark expressions: built-in ones only, no Python in the executors.

No expression asks for the session's time zone, a locale or the time parser policy, and none raises
under ANSI mode, so the result depends on the record and the configuration alone. JSON needs a
setting of :data:`tally.spark.session.SESSION_DEFAULTS`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.names import LEVEL, TEXT
from tally.lines.format import LineFormat
from tally.lines.options import BYTE_ORDER_MARK, Accepted
from tally.lines.time_rule import BEGINS_A_LINE, WALL_CLOCK, TimeRule, continuation_reasons
from tally.spark.expressions import (
    Stages,
    all_of,
    any_of,
    binary,
    matches_value,
)
from tally.spark.json_columns import JsonLine
from tally.spark.parsed_line import ParsedLine, TimeKey
from tally.spark.text_columns import FixedLine, PatternLine
from tally.spark.time_columns import TimeReader

_TO_THE_END: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LineReader:
    """How the records of a pipeline are understood.

    Raises:
        ValueError: One of the levels cannot stand in this line format.
    """

    line_format: LineFormat
    """How to find time, level and other fields."""
    levels: Sequence[str]
    """The levels that are counted, as the configuration names them; empty for any."""
    rule: TimeRule = WALL_CLOCK
    """How the minute follows from the line and the record."""
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values by field, of which a counted line has one; see docs/configuration.md."""
    labels: Sequence[str] = ()
    """Fields to group by besides the minute."""
    label_chars: int = 64
    """Code points that are kept of a label's value."""
    leaves_continuations: bool = False
    """Whether a record that begins no line is left out instead of malformed."""
    row_key: Sequence[str] = ()
    """Fields that together name what a line is about, where lines are kept."""
    each: bool = False
    """Whether records that are to be grouped are judged one by one all the same, which takes
    longer: a second way to the same counts."""

    def __post_init__(self) -> None:
        if any(not level or any(map(str.isspace, level)) for level in self.levels):
            raise ValueError(f"levels {list(self.levels)!r}: each without blanks")
        self.line_format.printed_levels(self.levels)

    def read(
        self,
        value: Column,
        *,
        record: Mapping[str, Column] | None = None,
        record_time: Column | None = None,
    ) -> "Line":
        """The columns for the records in ``value``.

        Args:
            value: Binary column with the record's bytes.
            record: Strings with what Kafka knows of the record, for labels and filters:
                ``topic``, ``partition``, ``key``.
            record_time: The record's timestamp, for the rule; None when there is none.
        """
        stages, line_format = Stages(), self.line_format
        micros = F.lit(-1) if record_time is None else F.unix_micros(record_time)
        kinds = ((line_format.is_fixed, FixedLine), (line_format.is_json, JsonLine))
        kind = next((kind for is_it, kind in kinds if is_it), PatternLine)
        parsed = kind(
            value=self._line(value, stages),
            line_format=line_format,
            times=TimeReader(rule=self.rule, record_micros=micros, stages=stages),
            levels=line_format.printed_levels(self.levels),
        )
        return Line(reader=self, parsed=parsed, record=record or {})

    def _line(self, value: Column, stages: Stages) -> Column:
        """A record's value without what stands before its line."""
        options, line = self.line_format.options, value
        if options.skip_bytes:
            line = F.substring(value, options.skip_bytes + 1, _TO_THE_END)
        if Accepted.BYTE_ORDER_MARK in options:
            marked = F.substring(line, 1, len(BYTE_ORDER_MARK)) == binary(BYTE_ORDER_MARK)
            rest = F.substring(line, len(BYTE_ORDER_MARK) + 1, _TO_THE_END)
            line = F.when(marked, rest).otherwise(line)
        return value if line is value else stages.add(line)


@dataclass(kw_only=True, eq=False)
class Line:
    """What a record says by itself: ``malformed_reason`` or ``minute`` is null, or both are.

    What is not asked for is not built. Compute all in one ``select`` and aggregate their results,
    not the expressions: Spark shares the work between columns of one projection, but not between a
    grouping key and an aggregate.
    """

    reader: LineReader
    """How it is understood."""
    parsed: ParsedLine
    """The record taken apart."""
    record: Mapping[str, Column]
    """What Kafka knows of it."""

    @property
    def stages(self) -> Stages:
        """What must be computed beforehand.

        The other columns are for :meth:`tally.spark.expressions.Stages.select`.
        """
        return self.parsed.times.stages

    @cached_property
    def malformed_reason(self) -> Column:
        """String: a :class:`~tally.lines.format.MalformedReason`; null for a well-formed record."""
        reason = self.parsed.malformed_reason
        return F.when(~self.continues, reason) if self.reader.leaves_continuations else reason

    @cached_property
    def continues(self) -> Column:
        """Boolean: whether the record begins no line, and thus is not malformed."""
        if not self.reader.leaves_continuations:
            return F.lit(False)
        reasons = continuation_reasons(self.reader.line_format, self.reader.rule)
        begins_no_line = self.parsed.malformed_reason.isin(*reasons)
        # Of the others nothing is looked at.
        looks_whole = F.when(begins_no_line, self.parsed.value.cast("string").rlike(BEGINS_A_LINE))
        return F.coalesce(begins_no_line & ~looks_whole, F.lit(False))

    @cached_property
    def is_counted(self) -> Column:
        """Boolean, never null: whether the line is counted, unless it is malformed."""
        at_level = [self.parsed.is_at_level()] if self.reader.levels else []
        conditions = at_level + [self._has_one(*of) for of in self.reader.filters.items()]
        return F.coalesce(all_of(conditions), F.lit(False)) if conditions else F.lit(True)

    @cached_property
    def minute(self) -> Column:
        """String ``YYYY-MM-DD HH:MM:00``, the minute of a well-formed line that is counted.

        Null for any other record.
        """
        return F.when(self._has_minute, self.parsed.minute)

    @cached_property
    def labels(self) -> list[Column]:
        """Strings, valid UTF-8: a value for each label where ``minute`` is not null.

        '' when the line has none; null for any other record.
        """
        return self.labels_where(self._has_minute)

    @cached_property
    def key(self) -> TimeKey:
        """What records are grouped by before they are judged, which takes less work.

        A record is malformed when its key is null, or the minute of its key. The key is null also
        for a record that begins no line.
        """
        if self.reader.each or self.reader.leaves_continuations:
            return self.parsed.minute_key()
        return self.parsed.time_key()

    @cached_property
    def key_labels(self) -> list[Column]:
        """As ``labels``; null where ``key`` is null or ``is_counted`` is false."""
        return self.labels_where(self.is_counted & self.key.of_record.isNotNull())

    @cached_property
    def key_digest(self) -> Column:
        """Binary: SHA-256 of the key fields of a counted line, as they were written.

        Null where one of them is missing or empty, or may stand for another text. A line without a
        digest is always shown: rather twice than not at all.
        """
        names = sorted(self.reader.row_key)
        if not names:
            return F.lit(None).cast("binary")
        texts = list(map(self._find, names))
        is_written_so = all_of(map(self.parsed.is_written_so, texts))
        # With its length each value has one spelling. A null makes all of it null.
        none = {LEVEL: self.reader.line_format.options.default_level}
        values = [F.nullif(t, F.lit(none.get(n, ""))) for n, t in zip(names, texts, strict=True)]
        parts = [F.concat(F.octet_length(v).cast("string"), F.lit(":"), v) for v in values]
        spelled = F.concat(F.lit(f"{json.dumps(names)} "), *parts)
        digest = F.unhex(F.sha2(spelled.cast("binary"), 256))
        return F.when(self._has_minute & is_written_so, digest)

    @cached_property
    def _has_minute(self) -> Column:
        return self.parsed.well_formed & self.is_counted

    def _find(self, name: str) -> Column:
        """A field: Kafka's, else the line's."""
        return self.record[name] if name in self.record else self.parsed.field(name)

    def labels_where(self, condition: Column) -> list[Column]:
        """The labels of records for which a condition holds; null for others."""
        valid = [F.make_valid_utf8(self._find(name)) for name in self.reader.labels]
        cut = [F.coalesce(F.substring(v, 1, self.reader.label_chars), F.lit("")) for v in valid]
        return [F.when(condition, label) for label in cut]

    def _has_one(self, name: str, values: Sequence[str]) -> Column:
        """Whether a field has one of some values, ``*`` standing for any characters."""
        if name == TEXT:
            found = any_of(F.contains(self.parsed.value, binary(v.encode())) for v in values)
            return F.coalesce(found, F.lit(False))
        text = F.coalesce(F.make_valid_utf8(self._find(name)), F.lit(""))
        exact = [v for v in values if "*" not in v]
        one_of = [text.isin(*exact)] if exact else []
        return any_of([*one_of, *(matches_value(text, v) for v in values if "*" in v)])
