r"""Line formats as Spark expressions: built-in ones only, no Python in the executors.

Everything is computed on bytes and texts. No expression asks for a time zone, a locale or the
time parser policy, and none raises under ANSI mode, so the result depends on the record and the
line format alone.

The time is checked by casting nineteen bytes to TIMESTAMP_NTZ. The cast alone is too lenient
(``2017-7-3``, a ``T``, a trailing blank, a zone). But when ``-`` stands fifth, a blank eleventh,
``:`` seventeenth and a digit last, every field that it accepts has its full width; the tests
compare this with an independent implementation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.format import HEAD_BYTES, LineFormat, MalformedReason
from tally.lines.time_format import MONTHS, WEEKDAYS, TimeFormat, TimePart

_FIXED_SHAPE: Final = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\z"
_LEVEL_ENDS: Final = (b" ", b"\t", b"\r", b"\n", b"")
_MARK: Final = "\n"
_TO_THE_END: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LineColumns:
    """What a record says, as two columns of which at most one is not null.

    Compute both in one ``select`` and aggregate their results, not the expressions: Spark shares
    the work between columns of one projection, but not between a grouping key and an aggregate.
    """

    malformed_reason: Column
    """String: a :class:`~tally.lines.format.MalformedReason`; null for a well-formed record."""
    minute: Column
    """String ``YYYY-MM-DD HH:MM:00``, the wall clock of a well-formed line at a counted level;
    null for any other record."""


def parse_line(value: Column, line_format: LineFormat, levels: Sequence[str]) -> LineColumns:
    """Build the columns for the records in ``value``.

    Args:
        value: Binary column with the record's bytes.
        line_format: How to find time and level.
        levels: The levels that are counted; compared as the line prints them.

    Raises:
        ValueError: There are no levels, or one of them cannot stand in this line format.
    """
    if not levels or any(not level or any(map(str.isspace, level)) for level in levels):
        raise ValueError(f"levels {list(levels)!r}: name at least one, each without blanks")
    build = _fixed_columns if line_format.is_fixed else _pattern_columns
    return build(value, line_format, line_format.printed_levels(levels))


def _fixed_columns(value: Column, _: LineFormat, levels: Sequence[str]) -> LineColumns:
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
    counted = _any(_is_level(value, 20, level) for level in levels)
    return LineColumns(malformed_reason=reason, minute=_minute_if(well_formed & counted, value))


def _is_level(value: Column, position: int, level: str) -> Column:
    """Whether a blank, ``level`` and the end of the word stand at ``position``."""
    word = b" " + level.encode()
    return F.substring(value, position, len(word) + 1).isin(
        *[_bytes(word + end) for end in _LEVEL_ENDS]
    )


def _pattern_columns(value: Column, line_format: LineFormat, levels: Sequence[str]) -> LineColumns:
    time_format = line_format.parsed_time_format
    found = _time_and_level(value, line_format.parsed_pattern.java).cast("binary")
    time = _normalised(found, time_format).cast("binary")
    level = F.substring(found, time_format.width + 3, _TO_THE_END)
    checks = [*_literal_checks(found, time_format), *_time_checks(time)]
    well_formed = _all([*checks, time >= _bytes(b"1"), F.length(level) > 0])
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
    counted = level.isin(*[_bytes(word.encode()) for word in levels])
    return LineColumns(malformed_reason=reason, minute=_minute_if(well_formed & counted, time))


def _time_and_level(value: Column, java_pattern: str) -> Column:
    r"""``\n``, the group ``time``, ``\n`` and the group ``level``, in one run of the pattern.

    A line in which the pattern finds nothing stays as it is and thus has no ``\n``, so no line can
    pass itself off as a result. A group that took no part is empty.
    """
    head = F.substring(value, 1, HEAD_BYTES).cast("string")
    line = F.substring_index(F.substring_index(head, "\n", 1), "\r", 1)
    whole_line = rf"(?d)\A(?:{java_pattern})[^\n]*+"
    return F.regexp_replace(line, whole_line, rf"{_MARK}${{time}}{_MARK}${{level}}")


def _literal_checks(found: Column, time_format: TimeFormat) -> list[Column]:
    """That the literals, fractions and weekdays of the time stand where they should."""
    checks = [
        F.substring(found, position, 1) == _bytes(_MARK.encode())
        for position in (1, time_format.width + 2)
    ]
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
