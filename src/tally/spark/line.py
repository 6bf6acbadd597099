"""A record as Spark expressions: what each kind of line answers, and what follows for all of them.

Records are grouped by a key of their time. Calendar and clock are asked once for each distinct key
instead of once for each record: a batch has few minutes and many records.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.names import LEVEL, TEXT
from tally.config.pipeline import Pipeline
from tally.lines.format import Accepted, LineFormat, MalformedReason
from tally.lines.pattern import HEAD_BYTES
from tally.lines.redaction import REPLACEMENT
from tally.lines.time_rule import BEGINS_A_LINE, continuation_reasons
from tally.spark import expressions as ex
from tally.spark.time_columns import TimeColumns, TimeReader, minute_of


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeKey:
    """The part of a record's time that its whole group shares."""

    of_record: Column
    """A string; null where the record is malformed, whatever calendar and clock say."""
    minute: Callable[[Column, ex.Stages], Column]
    """From a key its minute, ``YYYY-MM-DD HH:MM:00``; null when there is none. The stages are for
    the frame that has the key."""


@dataclass(kw_only=True, eq=False)
class Line(ABC):
    """What a record says by itself: ``malformed_reason`` or ``minute`` is null, or both are.

    What is not asked for is not built. Compute all in one ``select`` and aggregate their results,
    not the expressions: Spark shares the work between columns of one projection, but not between a
    grouping key and an aggregate.
    """

    pipeline: Pipeline
    """Which lines are counted, and by what."""
    line_format: LineFormat
    """How it is written."""
    each: bool
    """Whether records that are to be grouped are judged one by one all the same, which takes
    longer: a second way to the same counts. They have the columns of
    :func:`tally.spark.grouping.with_parts` then, and each part is counted by itself."""
    value: Column
    """Binary column with the bytes of its line."""
    record: Mapping[str, Column]
    """Strings with what Kafka knows of it, for labels and filters."""
    times: TimeReader
    """How its minute follows."""

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

    def is_written_so(self, text: Column) -> Column:
        """Whether no other value of a field reads like this text.

        No byte was replaced, no blank exchanged, and the text ends before the head does. Of a
        longer record only the head is read: a field at its end may go on.
        """
        value, length, options = self.value, F.octet_length(text), self.line_format.options
        tail = F.substring(value, F.lit(HEAD_BYTES + 1) - length, length)
        is_whole = (F.octet_length(value) <= HEAD_BYTES) | (tail != text.cast("binary"))
        head = ex.valid_text(F.substring(value, 1, HEAD_BYTES))
        blanks = [ex.usual_blanks(head, options) == head] if Accepted.BLANKS in options else []
        return ex.all_of([~F.contains(text, F.lit(ex.REPLACED)), is_whole, *blanks])

    def time_key(self) -> TimeKey:
        """What is found with the least work; null without a level where one is needed."""
        return self.minute_key()

    @property
    def printed_levels(self) -> Sequence[str]:
        """The levels that are counted, as lines print them; '' stands for the default level."""
        return self.line_format.printed_levels(self.pipeline.levels)

    @property
    def stages(self) -> ex.Stages:
        """What must be computed beforehand.

        The other columns are for :meth:`tally.spark.expressions.Stages.select`.
        """
        return self.times.stages

    def level_checks(self) -> list[Column]:
        """That there is a level, where one is needed."""
        needs_level = self.pipeline.levels and not self.line_format.options.default_level
        return [self.has_level()] if needs_level else []

    @cached_property
    def time(self) -> TimeColumns:
        """When it was written, by the rule."""
        return self.times.of_record() if self.times.rule.from_record else self.stated_time()

    @cached_property
    def well_formed(self) -> Column:
        """Boolean: whether the record is understood."""
        time = self.time
        return ex.all_of([*self.is_line(), time.exists, time.in_range, *self.level_checks()])

    @cached_property
    def malformed_reason(self) -> Column:
        """String: a :class:`~tally.lines.format.MalformedReason`; null for a well-formed record."""
        if not self.pipeline.leaves_continuations:
            return self._reason
        return F.when(~self.continues, self._reason)

    @cached_property
    def _reason(self) -> Column:
        """The first reason that applies."""
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

    @cached_property
    def continues(self) -> Column:
        """Boolean: whether the record begins no line, and thus is not malformed."""
        if not self.pipeline.leaves_continuations:
            return F.lit(False)
        reasons = continuation_reasons(self.line_format, self.times.rule)
        begins_no_line = self._reason.isin(*reasons)
        # Nothing of the others is read.
        looks_whole = F.when(begins_no_line, self.value.cast("string").rlike(BEGINS_A_LINE))
        return F.coalesce(begins_no_line & ~looks_whole, F.lit(False))

    @cached_property
    def is_counted(self) -> Column:
        """Boolean, never null: whether the line is counted, unless it is malformed."""
        at_level = [self.is_at_level()] if self.pipeline.levels else []
        conditions = at_level + [self._has_one(*of) for of in self.pipeline.filter.items()]
        return F.coalesce(ex.all_of(conditions), F.lit(False)) if conditions else F.lit(True)

    @property
    def well_formed_minute(self) -> Column:
        """String ``YYYY-MM-DD HH:MM:00``, the minute of a well-formed line."""
        return F.when(self.well_formed, minute_of(self.time.normal))

    @cached_property
    def minute(self) -> Column:
        """The same of a well-formed line that is counted; null for any other record."""
        return F.when(self._has_minute, minute_of(self.time.normal))

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
        if self.each or self.pipeline.leaves_continuations:
            return self.minute_key()
        return self.time_key()

    def minute_key(self) -> TimeKey:
        """The minute itself, for which each record is judged by itself."""
        return TimeKey(of_record=self.well_formed_minute, minute=lambda key, _: key)

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
        names = sorted(self.pipeline.row_key)
        if not names:
            return F.lit(None).cast("binary")
        texts = list(map(self._find, names))
        is_written_so = ex.all_of(map(self.is_written_so, texts))
        # With its length each value has one spelling. A null makes all of it null.
        none = {LEVEL: self.line_format.options.default_level}
        values = [F.nullif(t, F.lit(none.get(n, ""))) for n, t in zip(names, texts, strict=True)]
        parts = [F.concat(F.octet_length(v).cast("string"), F.lit(":"), v) for v in values]
        spelled = F.concat(F.lit(f"{json.dumps(names)} "), *parts)
        digest = F.unhex(F.sha2(spelled.cast("binary"), 256))
        return F.when(self._has_minute & is_written_so, digest)

    @cached_property
    def _has_minute(self) -> Column:
        return self.well_formed & self.is_counted

    def _find(self, name: str) -> Column:
        """A field: Kafka's, else the line's."""
        return self.record[name] if name in self.record else self.field(name)

    def labels_where(self, condition: Column) -> list[Column]:
        """The labels of records for which a condition holds; null for others."""
        labels, chars = self.pipeline.labels, self.pipeline.label_max_chars
        valid = map(self._redacted, labels)
        cut = [F.coalesce(F.substring(v, 1, chars), F.lit("")) for v in valid]
        return [F.when(condition, label) for label in cut]

    def _redacted(self, name: str) -> Column:
        """A field as it may be stored; one that is cut may end with the beginning of a match."""
        text, pattern = F.make_valid_utf8(self._find(name)), self.pipeline.redaction
        if not pattern:
            return text
        whole = ex.redacted_text(text, pattern)
        is_own = name not in self.record
        return F.when(self.is_cut(name), F.lit(REPLACEMENT)).otherwise(whole) if is_own else whole

    def is_cut(self, name: str) -> Column:  # noqa: ARG002 - most formats see all of a field
        """Whether a field may go on behind what is seen of a long line."""
        return F.lit(False)

    def _has_one(self, name: str, values: Sequence[str]) -> Column:
        """Whether a field has one of some values, ``*`` standing for any characters."""
        if name == TEXT:
            found = ex.any_of(F.contains(self.value, ex.binary(v.encode())) for v in values)
            return F.coalesce(found, F.lit(False))
        text = F.coalesce(F.make_valid_utf8(self._find(name)), F.lit(""))
        exact = [v for v in values if "*" not in v]
        one_of = [text.isin(*exact)] if exact else []
        return ex.any_of([*one_of, *(ex.matches_value(text, v) for v in values if "*" in v)])
