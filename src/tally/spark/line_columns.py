r"""Line formats as Spark expressions: built-in ones only, no Python in the executors.

Everything is computed on bytes and texts. No expression asks for a time zone, a locale or the
time parser policy, and none raises under ANSI mode, so the result depends on the record and the
line format alone.

The time is checked by casting nineteen bytes to TIMESTAMP_NTZ. The cast alone is too lenient
(``2017-7-3``, a ``T``, a trailing blank, a zone). But when ``-`` stands fifth, a blank eleventh,
``:`` seventeenth and a digit last, every field that it accepts has its full width; the tests
compare this with an independent implementation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.labels import LEVEL, TEXT
from tally.lines.format import HEAD_BYTES, LineFormat, MalformedReason
from tally.lines.time_format import MONTHS, WEEKDAYS, TimeFormat, TimePart

_FIXED_SHAPE: Final = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\z"
_FIXED_LEVEL: Final = r"\A[^ \t\r\n]*+"
_LEVEL_ENDS: Final = (b" ", b"\t", b"\r", b"\n", b"")
_MARK: Final = "\n"
_TO_THE_END: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LineColumns:
    """What a record says, as columns of which the first two are never both not null.

    Compute all in one ``select`` and aggregate their results, not the expressions: Spark shares
    the work between columns of one projection, but not between a grouping key and an aggregate.
    """

    malformed_reason: Column
    """String: a :class:`~tally.lines.format.MalformedReason`; null for a well-formed record."""
    minute: Column
    """String ``YYYY-MM-DD HH:MM:00``, the wall clock of a well-formed line that is counted; null
    for any other record."""
    labels: tuple[Column, ...] = ()
    """Strings, valid UTF-8: a value for each label where ``minute`` is not null, '' when the line
    has none; null for any other record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Which lines at the levels are counted, and by what."""

    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Values by field, of which a counted line has one; see docs/configuration.md."""
    labels: Sequence[str] = ()
    """Fields by which is counted besides the minute."""
    label_chars: int = 64
    """Code points that are kept of a label's value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A record taken apart."""

    reason: Column
    """Why it is malformed; null when it is not."""
    well_formed: Column
    """Whether it is understood."""
    time: Column
    """Binary, starts with the normalised time."""
    is_at: Callable[[Sequence[str]], Column]
    """Whether the line is at one of some levels, as printed."""
    fields: Callable[[str], Column]
    """A field of the line as a string; '' or null when it has none."""


def parse_line(
    value: Column,
    line_format: LineFormat,
    levels: Sequence[str],
    *,
    rules: Rules | None = None,
    record: Mapping[str, Column] | None = None,
) -> LineColumns:
    """Build the columns for the records in ``value``.

    Args:
        value: Binary column with the record's bytes.
        line_format: How to find time, level and other fields.
        levels: The levels that are counted, as the configuration names them; empty for any.
        rules: Filters and labels besides; none when None.
        record: Strings with what Kafka knows of the record, for labels and filters:
            ``topic``, ``partition``, ``key``.

    Raises:
        ValueError: One of the levels cannot stand in this line format.
    """
    if any(not level or any(map(str.isspace, level)) for level in levels):
        raise ValueError(f"levels {list(levels)!r}: each without blanks")
    rules, record = rules or Rules(), record or {}
    text = F.make_valid_utf8(_first_line(value)) if rules.labels or rules.filters else None
    line = _fixed_line(value) if line_format.is_fixed else _pattern_line(value, line_format, text)

    def find(name: str) -> Column:
        return record[name] if name in record else line.fields(name)

    counted = [line.well_formed]
    if levels:
        counted.append(line.is_at(line_format.printed_levels(levels)))
    counted += [_has_one(value, name, of, find) for name, of in rules.filters.items()]
    is_counted = _all(counted)
    return LineColumns(
        malformed_reason=line.reason,
        minute=_minute_if(is_counted, line.time),
        labels=tuple(
            F.when(is_counted, _label(find(name), rules.label_chars)) for name in rules.labels
        ),
    )


def _has_one(
    value: Column, name: str, values: Sequence[str], find: Callable[[str], Column]
) -> Column:
    """Whether a field has one of some values, ``*`` standing for any characters."""
    if name == TEXT:
        return F.coalesce(_any(F.contains(value, _bytes(v.encode())) for v in values), F.lit(False))
    text = F.make_valid_utf8(find(name))
    return F.coalesce(_any(text.like(_like(v)) for v in values), F.lit(False))


def _like(value: str) -> str:
    for special in ("\\", "%", "_"):
        value = value.replace(special, "\\" + special)
    return value.replace("*", "%")


def _label(text: Column, chars: int) -> Column:
    return F.coalesce(F.substring(F.make_valid_utf8(text), 1, chars), F.lit(""))


def _fixed_line(value: Column) -> _Line:
    before_level = F.substring(value, 20, 2)
    has_level = _all([before_level > _bytes(b"  "), before_level < _bytes(b"!")])
    well_formed = _all([*_time_checks(value), has_level, value >= _bytes(b"1")])
    shaped = F.substring(value, 1, 19).cast("string").rlike(_FIXED_SHAPE)
    reason = (
        F.when(well_formed, F.lit(None))
        .when(value.isNull(), MalformedReason.NULL_VALUE.value)
        .when(F.length(value) == 0, MalformedReason.EMPTY_VALUE.value)
        .when(~shaped, MalformedReason.NO_TIME.value)
        .when(_timestamp(value).isNull(), MalformedReason.TIME_INVALID.value)
        .when(value < _bytes(b"1"), MalformedReason.TIME_OUT_OF_RANGE.value)
        .otherwise(MalformedReason.NO_LEVEL.value)
    )
    return _Line(
        reason=reason,
        well_formed=well_formed,
        time=value,
        is_at=lambda levels: _any(_is_level(value, 20, level) for level in levels),
        # No label is longer than some hundred characters, so the level is not looked for further.
        fields=lambda _: F.regexp_extract(
            F.substring(value, 21, HEAD_BYTES).cast("string"), _FIXED_LEVEL, 0
        ),
    )


def _is_level(value: Column, position: int, level: str) -> Column:
    """Whether a blank, ``level`` and the end of the word stand at ``position``."""
    word = b" " + level.encode()
    return F.substring(value, position, len(word) + 1).isin(
        *[_bytes(word + end) for end in _LEVEL_ENDS]
    )


def _pattern_line(value: Column, line_format: LineFormat, text: Column | None) -> _Line:
    time_format, pattern = line_format.parsed_time_format, line_format.parsed_pattern
    # The level first: of the groups it alone has its place in every line.
    names = [LEVEL] * line_format.has_level
    names += [name for name in line_format.fields if name != LEVEL]
    line = _first_line(value) if text is None else text
    found = _groups(line, pattern.java, names).cast("binary")
    time = _normalised(found, time_format).cast("binary")
    rest = F.substring(found, time_format.width + 3, _TO_THE_END)
    first = rest if len(names) == 1 else F.split(rest.cast("string"), _MARK)[0].cast("binary")
    checks = [*_literal_checks(found, time_format, marks=2 if names else 1), *_time_checks(time)]
    has_level = [F.length(first) > 0] if line_format.has_level else []
    well_formed = _all([*checks, time >= _bytes(b"1"), *has_level])
    reason = (
        F.when(well_formed, F.lit(None))
        .when(value.isNull(), MalformedReason.NULL_VALUE.value)
        .when(F.length(value) == 0, MalformedReason.EMPTY_VALUE.value)
        .when(F.substring(found, 1, 1) != _bytes(_MARK.encode()), MalformedReason.NO_MATCH.value)
        .when(F.substring(found, 2, 1) == _bytes(_MARK.encode()), MalformedReason.NO_TIME.value)
        .when(~F.coalesce(_all(checks), F.lit(False)), MalformedReason.TIME_INVALID.value)
        .when(time < _bytes(b"1"), MalformedReason.TIME_OUT_OF_RANGE.value)
        .otherwise(MalformedReason.NO_LEVEL.value)
    )

    def field_of(name: str) -> Column:
        text = F.get(F.split(rest.cast("string"), _MARK), F.lit(names.index(name)))
        if name == LEVEL and line_format.level_names:
            return _looked_up(text, line_format.level_names)
        return text

    return _Line(
        reason=reason,
        well_formed=well_formed,
        time=time,
        is_at=lambda levels: first.isin(*[_bytes(word.encode()) for word in levels]),
        fields=field_of,
    )


def _first_line(value: Column) -> Column:
    """What a pattern sees of a record, as a string; its bytes may be no valid UTF-8."""
    head = F.substring(value, 1, HEAD_BYTES).cast("string")
    return F.substring_index(F.substring_index(head, "\n", 1), "\r", 1)


def _groups(line: Column, java_pattern: str, names: Sequence[str]) -> Column:
    r"""``\n``, the group ``time``, then for each name ``\n`` and its group, in one run.

    A line in which the pattern finds nothing stays as it is and thus has no ``\n``, so no line can
    pass itself off as a result. A group that took no part is empty.
    """
    whole_line = rf"(?d)\A(?:{java_pattern})[^\n]*+"
    found = "".join(f"{_MARK}${{{name}}}" for name in ("time", *names))
    return F.regexp_replace(line, whole_line, found)


def _literal_checks(found: Column, time_format: TimeFormat, *, marks: int) -> list[Column]:
    """That the literals, fractions and weekdays of the time stand where they should.

    Args:
        found: The groups, each behind a mark.
        time_format: Of the first one.
        marks: 2 when another group follows, 1 when the time is the last.
    """
    checks = [
        F.substring(found, position, 1) == _bytes(_MARK.encode())
        for position in (1, time_format.width + 2)[:marks]
    ]
    if marks == 1:
        checks.append(F.length(found) == time_format.width + 1)
    for part in time_format.parts:
        text = _piece(found, part)
        if part.literal:
            checks.append(text == F.lit(part.literal))
        elif part.letters == "EEE":
            checks.append(text.isin(*WEEKDAYS))
        elif part.letters[0] == "S":
            checks.append(text.rlike(rf"\A[0-9]{{{part.width}}}\z"))
    return checks


def _normalised(found: Column, time_format: TimeFormat) -> Column:
    """The time as ``YYYY-MM-DD HH:MM:SS``; null or misshapen when a field is."""
    fields = {part.letters: _piece(found, part) for part in time_format.parts if part.letters}
    year = fields.get("yyyy")
    if year is None:
        year = F.concat(F.lit("20"), fields["yy"])
    month = _month_number(fields["MMM"]) if "MMM" in fields else fields["MM"]
    hour = _hour_of_day(fields["hh"], fields["a"]) if "hh" in fields else fields["HH"]
    second = fields.get("ss", F.lit("00"))
    dash, colon = F.lit("-"), F.lit(":")
    day = F.concat(year, dash, month, dash, fields["dd"])
    return F.concat(day, F.lit(" "), hour, colon, fields["mm"], colon, second)


def _month_number(name: Column) -> Column:
    """The month from 01 to 12; null when the name is none."""
    return _looked_up(
        name, {month: f"{number:02d}" for number, month in enumerate(MONTHS, start=1)}
    )


def _hour_of_day(hour: Column, marker: Column) -> Column:
    """The hour from 00 to 23 of a 12-hour clock; null when hour or marker is none."""
    hours = {
        f"{twelve:02d}{half}": f"{twelve % 12 + noon:02d}"
        for half, noon in (("AM", 0), ("am", 0), ("PM", 12), ("pm", 12))
        for twelve in range(1, 13)
    }
    return _looked_up(F.concat(hour, marker), hours)


def _looked_up(word: Column, table: Mapping[str, str]) -> Column:
    entries = [F.lit(text) for entry in table.items() for text in entry]
    return F.try_element_at(F.create_map(*entries), word)


def _piece(found: Column, part: TimePart) -> Column:
    return F.substring(found, part.position + 1, part.width).cast("string")


def _time_checks(line: Column) -> list[Column]:
    """That ``line`` starts with a time that exists; see the module's docstring."""
    last = F.substring(line, 19, 1)
    return [
        F.substring(line, 5, 1) == _bytes(b"-"),
        F.substring(line, 11, 1) == _bytes(b" "),
        F.substring(line, 17, 1) == _bytes(b":"),
        last >= _bytes(b"0"),
        last <= _bytes(b"9"),
        _timestamp(line).isNotNull(),
    ]


def _timestamp(line: Column) -> Column:
    return F.substring(line, 1, 19).cast("string").try_cast("timestamp_ntz")


def _minute_if(condition: Column, line: Column) -> Column:
    return F.when(condition, F.concat(F.substring(line, 1, 16).cast("string"), F.lit(":00")))


def _bytes(literal: bytes) -> Column:
    return F.lit(bytearray(literal))


def _all(conditions: Sequence[Column]) -> Column:
    return reduce(and_, conditions)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(lambda left, right: left | right, conditions)
