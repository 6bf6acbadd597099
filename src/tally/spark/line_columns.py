r"""Line formats as Spark expressions: built-in ones only, no Python in the executors.

No expression asks for the session's time zone, a locale or the time parser policy, and none raises
under ANSI mode, so the result depends on the record and the configuration alone. JSON needs a
setting of :data:`tally.spark.session.SESSION_DEFAULTS`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.names import LEVEL, TEXT
from tally.lines.format import LineFormat
from tally.lines.options import BYTE_ORDER_MARK, Accepted
from tally.lines.pattern import HEAD_BYTES
from tally.lines.time_rule import BEGINS_A_LINE, WALL_CLOCK, TimeRule, continuation_reasons
from tally.spark.expressions import all_of, any_of, binary, usual_blanks, valid_text
from tally.spark.fixed_columns import fixed_line
from tally.spark.json_columns import json_line, readable
from tally.spark.parsed_line import ParsedLine
from tally.spark.pattern_columns import pattern_line
from tally.spark.stages import Stages
from tally.spark.time_columns import TimeReader
from tally.spark.wildcards import matches_value


@dataclass(frozen=True, kw_only=True, slots=True)
class LineColumns:
    """What a record says by itself; ``malformed_reason`` or ``minute`` is null, or both are.

    Compute all in one ``select`` and aggregate their results, not the expressions: Spark shares
    the work between columns of one projection, but not between a grouping key and an aggregate.
    """

    malformed_reason: Column
    """String: a :class:`~tally.lines.format.MalformedReason`; null for a well-formed record."""
    minute: Column
    """String ``YYYY-MM-DD HH:MM:00``, the minute of a well-formed line that is counted; null for
    any other record."""
    stages: Stages
    """What must be computed beforehand: the other columns are for the frame that
    :meth:`~tally.spark.stages.Stages.applied` returns."""
    continues: Column
    """Boolean: whether the record begins no line, and thus is not malformed."""
    labels: tuple[Column, ...] = ()
    """Strings, valid UTF-8: a value for each label where ``minute`` is not null, '' when the line
    has none; null for any other record."""
    key_digest: Column | None = None
    """Binary: SHA-256 of the key fields of a counted line; null where one of them is missing or
    empty. None when there are no such fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineKeys:
    """What records are grouped by before they are judged; with less work than :class:`LineColumns`.

    A record is malformed when its key is null, or the minute of its key.
    """

    key: Column
    """What the minute depends on; null for a record that is malformed whatever its calendar says,
    and for one that begins no line."""
    minute: Callable[[Column, Stages], Column]
    """From a key its minute, ``YYYY-MM-DD HH:MM:00``; null when there is none. The stages are for
    the frame that has the key."""
    is_counted: Column
    """Boolean, never null: whether the line is counted, unless it is malformed."""
    continues: Column
    """As in :class:`LineColumns`."""
    stages: Stages
    """As in :class:`LineColumns`."""
    labels: tuple[Column, ...] = ()
    """As in :class:`LineColumns`, null where ``key`` is null or ``is_counted`` is false."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Filters and grouping labels, applied after the level check; and what is left out at once."""

    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values by field, of which a counted line has one; see docs/configuration.md."""
    labels: Sequence[str] = ()
    """Fields to group by besides the minute."""
    label_chars: int = 64
    """Code points that are kept of a label's value."""
    leaves_continuations: bool = False
    """Whether a record that begins no line is left out instead of malformed."""
    row_key: Sequence[str] = ()
    """Fields that together name what a line tells of, where lines are kept."""


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
    selection: Selection = Selection()
    """Additional filters and labels."""
    each: bool = False
    """Whether records that are to be grouped are judged one by one all the same, which takes
    longer: a second way to the same counts."""

    def __post_init__(self) -> None:
        if any(not level or any(map(str.isspace, level)) for level in self.levels):
            raise ValueError(f"levels {list(self.levels)!r}: each without blanks")
        self.line_format.printed_levels(self.levels)

    def judged(
        self,
        value: Column,
        *,
        record: Mapping[str, Column] | None = None,
        record_time: Column | None = None,
    ) -> LineColumns:
        """The columns for the records in ``value``, each judged by itself.

        Args:
            value: Binary column with the record's bytes.
            record: Strings with what Kafka knows of the record, for labels and filters:
                ``topic``, ``partition``, ``key``.
            record_time: The record's timestamp, for the rule; None when there is none.
        """
        stages = Stages()
        value = self._line(value, stages)
        line = self._taken_apart(value, record_time, stages)
        find = _finder(line, record or {})
        judged = line.judged()
        is_counted = all_of([judged.well_formed, *self._is_counted(value, line, find)])
        reason, continues = judged.reason, F.lit(False)
        if self.selection.leaves_continuations:
            continues = self._continues(value, reason)
            reason = F.when(~continues, reason)
        return LineColumns(
            malformed_reason=reason,
            continues=continues,
            stages=stages,
            minute=F.when(is_counted, judged.minute),
            labels=self._labels(is_counted, find),
            key_digest=self._key_digest(value, is_counted, find),
        )

    def keys(
        self,
        value: Column,
        *,
        record: Mapping[str, Column] | None = None,
        record_time: Column | None = None,
    ) -> LineKeys:
        """The columns to group the records in ``value`` by.

        The arguments are those of :meth:`LineReader.judged`.
        """
        stages = Stages()
        value = self._line(value, stages)
        line = self._taken_apart(value, record_time, stages)
        find = _finder(line, record or {})
        continues = F.lit(False)
        if self.each or self.selection.leaves_continuations:
            judged = line.judged()
            time = judged.time_key
            if self.selection.leaves_continuations:
                continues = self._continues(value, judged.reason)
        else:
            time = line.time_key()
        conditions = self._is_counted(value, line, find)
        is_counted = F.coalesce(all_of(conditions), F.lit(False)) if conditions else F.lit(True)
        return LineKeys(
            key=time.of_record,
            minute=time.minute,
            is_counted=is_counted,
            continues=continues,
            stages=stages,
            labels=self._labels(is_counted & time.of_record.isNotNull(), find),
        )

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

    def _taken_apart(self, value: Column, record_time: Column | None, stages: Stages) -> ParsedLine:
        times = TimeReader(rule=self.rule, record_micros=_micros(record_time), stages=stages)
        needs_level = bool(self.levels) and not self.line_format.options.default_level
        if self.line_format.is_fixed:
            levels = self.line_format.printed_levels(self.levels)
            return fixed_line(value, times, levels=levels)
        if self.line_format.is_json:
            return json_line(value, self.line_format, times, needs_level=needs_level)
        return pattern_line(
            value, self.line_format, times, whole=self.each, needs_level=needs_level
        )

    def _is_counted(
        self, value: Column, line: ParsedLine, find: Callable[[str], Column]
    ) -> list[Column]:
        """What must hold for a well-formed line to be counted."""
        at_level = [line.is_at(self.line_format.printed_levels(self.levels))] if self.levels else []
        filters = self.selection.filters.items()
        return at_level + [_has_one(value, name, of, find) for name, of in filters]

    def _continues(self, value: Column, reason: Column) -> Column:
        begins_no_line = reason.isin(*continuation_reasons(self.line_format, self.rule))
        # Of the others nothing is looked at.
        looks_whole = F.when(begins_no_line, value.cast("string").rlike(BEGINS_A_LINE))
        return F.coalesce(begins_no_line & ~looks_whole, F.lit(False))

    def _key_digest(
        self, value: Column, condition: Column, find: Callable[[str], Column]
    ) -> Column | None:
        """Of the key's values, as they were written; null where a text may stand for another one.

        A line without a digest is always shown: rather twice than not at all.
        """
        names = sorted(self.selection.row_key)
        if not names:
            return None
        is_written_so = all_of([*map(self._is_written_so(value), map(find, names))])
        # With its length each value has one spelling. A null makes all of it null.
        none = {LEVEL: self.line_format.options.default_level}
        values = [F.nullif(find(name), F.lit(none.get(name, ""))) for name in names]
        parts = [F.concat(F.octet_length(v).cast("string"), F.lit(":"), v) for v in values]
        spelled = F.concat(F.lit(f"{json.dumps(names)} "), *parts)
        digest = F.unhex(F.sha2(spelled.cast("binary"), 256))
        return F.when(condition & is_written_so, digest)

    def _is_written_so(self, value: Column) -> Callable[[Column], Column]:
        """What tells of a text in a record that no other value reads like it."""
        replaced = F.lit("\ufffd")  # in place of bytes that are no UTF-8
        if self.line_format.is_json:
            record = valid_text(value)
            is_unchanged = readable(record, self.line_format.options) == record
            return lambda text: all_of(
                [is_unchanged, ~F.contains(text, replaced), ~text.rlike(_ROUNDED)]
            )

        def is_whole(text: Column) -> Column:
            # Of a longer record only the head is looked at: a field at its end may go on.
            length = F.octet_length(text)
            tail = F.substring(value, F.lit(HEAD_BYTES + 1) - length, length)
            return (F.octet_length(value) <= HEAD_BYTES) | (tail != text.cast("binary"))

        options, of_line = self.line_format.options, []
        if Accepted.BLANKS in options:
            head = valid_text(F.substring(value, 1, HEAD_BYTES))
            of_line = [usual_blanks(head, options) == head]
        return lambda text: all_of([~F.contains(text, replaced), is_whole(text), *of_line])

    def _labels(self, condition: Column, find: Callable[[str], Column]) -> tuple[Column, ...]:
        chars = self.selection.label_chars
        return tuple(F.when(condition, _label(find(name), chars)) for name in self.selection.labels)


_TO_THE_END: Final = 2**31 - 1

# A number of more digits than Spark keeps is read as a double, whose text shows nothing of that; it
# may be in an array or an object.
_ROUNDED: Final = (
    r"^-?([0-9]*\.[0-9]+(E-?[0-9]+)?|Infinity|NaN)$|(?s)^[\[{].*([0-9]\.[0-9]|Infinity|NaN)"
)


def _finder(line: ParsedLine, record: Mapping[str, Column]) -> Callable[[str], Column]:
    """What finds a field by name: Kafka's, else the line's."""
    return lambda name: record[name] if name in record else line.fields(name)


def _micros(timestamp: Column | None) -> Column:
    return F.lit(-1) if timestamp is None else F.unix_micros(timestamp)


def _has_one(
    value: Column, name: str, values: Sequence[str], find: Callable[[str], Column]
) -> Column:
    """Whether a field has one of some values, ``*`` standing for any characters."""
    if name == TEXT:
        return F.coalesce(
            any_of(F.contains(value, binary(v.encode())) for v in values), F.lit(False)
        )
    text = F.coalesce(F.make_valid_utf8(find(name)), F.lit(""))
    exact = [v for v in values if "*" not in v]
    one_of = [text.isin(*exact)] if exact else []
    return any_of([*one_of, *(matches_value(text, v) for v in values if "*" in v)])


def _label(text: Column, chars: int) -> Column:
    return F.coalesce(F.substring(F.make_valid_utf8(text), 1, chars), F.lit(""))
