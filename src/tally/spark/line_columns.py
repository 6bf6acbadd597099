r"""Line formats as Spark expressions: built-in ones only, no Python in the executors.

No expression asks for the session's time zone, a locale or the time parser policy, and none raises
under ANSI mode, so the result depends on the record and the configuration alone. JSON needs a
setting of :data:`tally.spark.session.SESSION_DEFAULTS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.labels import TEXT
from tally.lines.format import LineFormat
from tally.lines.time_rule import WALL_CLOCK, TimeRule, continuation_reasons
from tally.spark.expressions import all_of, any_of, binary
from tally.spark.fixed_columns import fixed_line
from tally.spark.json_columns import json_line
from tally.spark.parsed_line import ParsedLine
from tally.spark.pattern_columns import pattern_line
from tally.spark.stages import Stages
from tally.spark.time_columns import TimeReader
from tally.spark.wildcards import matches_value


@dataclass(frozen=True, kw_only=True, slots=True)
class LineColumns:
    """What a record says, as columns; ``malformed_reason`` or ``minute`` is null, or both are.

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


def parse_line(
    value: Column,
    line_format: LineFormat,
    levels: Sequence[str],
    *,
    rule: TimeRule = WALL_CLOCK,
    selection: Selection | None = None,
    record: Mapping[str, Column] | None = None,
    record_time: Column | None = None,
) -> LineColumns:
    """Build the columns for the records in ``value``.

    Args:
        value: Binary column with the record's bytes.
        line_format: How to find time, level and other fields.
        levels: The levels that are counted, as the configuration names them; empty for any.
        rule: How the minute follows from the line and the record.
        selection: Additional filters and labels; None means none.
        record: Strings with what Kafka knows of the record, for labels and filters:
            ``topic``, ``partition``, ``key``.
        record_time: The record's timestamp, for the rule; None when there is none.

    Raises:
        ValueError: One of the levels cannot stand in this line format.
    """
    if any(not level or any(map(str.isspace, level)) for level in levels):
        raise ValueError(f"levels {list(levels)!r}: each without blanks")
    selection, record = selection or Selection(), record or {}
    stages = Stages()
    times = TimeReader(rule=rule, record_micros=_micros(record_time), stages=stages)
    line = _taken_apart(value, line_format, times, selection, needs_level=bool(levels))

    def find(name: str) -> Column:
        return record[name] if name in record else line.fields(name)

    counted = [line.well_formed]
    if levels:
        counted.append(line.is_at(line_format.printed_levels(levels)))
    counted += [_has_one(value, name, of, find) for name, of in selection.filters.items()]
    is_counted = all_of(counted)
    reason, continues = line.reason, F.lit(False)
    if selection.leaves_continuations:
        continues = F.coalesce(reason.isin(*continuation_reasons(line_format, rule)), F.lit(False))
        reason = F.when(~continues, reason)
    return LineColumns(
        malformed_reason=reason,
        continues=continues,
        stages=stages,
        minute=_minute_if(is_counted, line.time),
        labels=tuple(
            F.when(is_counted, _label(find(name), selection.label_chars))
            for name in selection.labels
        ),
    )


def _taken_apart(
    value: Column,
    line_format: LineFormat,
    times: TimeReader,
    selection: Selection,
    *,
    needs_level: bool,
) -> ParsedLine:
    if line_format.is_fixed:
        return fixed_line(value, times, needs_level=needs_level)
    if line_format.is_json:
        return json_line(value, line_format, times, needs_level=needs_level)
    as_text = bool(selection.labels or selection.filters)
    return pattern_line(value, line_format, times, as_text=as_text, needs_level=needs_level)


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


def _minute_if(condition: Column, line: Column) -> Column:
    return F.when(condition, F.concat(F.substring(line, 1, 16).cast("string"), F.lit(":00")))
