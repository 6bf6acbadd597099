"""Lines of a pattern as Spark expressions: one run of a regular expression for each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.labels import LEVEL
from tally.lines.format import LineFormat
from tally.lines.pattern import HEAD_BYTES, TIME
from tally.lines.time_format import TimeFormat
from tally.spark.expressions import all_of, binary, looked_up
from tally.spark.parsed_line import JudgedLine, ParsedLine, why_malformed
from tally.spark.time_columns import (
    TimeColumns,
    TimeReader,
    is_out_of_range,
    literal_checks,
    normalised,
    time_checks,
)
from tally.spark.time_key import TimeKey, key_by_position

_MARK: Final = "\n"
_TO_THE_END: Final = 2**31 - 1


def pattern_line(
    value: Column, line_format: LineFormat, times: TimeReader, *, whole: bool, needs_level: bool
) -> ParsedLine:
    """Take the records in ``value`` apart.

    Args:
        value: Binary column with the record's bytes.
        line_format: With a pattern.
        times: How the minute follows.
        whole: Whether the pattern is asked for all of its groups, even where fewer would do.
        needs_level: Whether a line without a level is malformed.
    """
    # The level first: of the groups it alone has its place in every line.
    names = [LEVEL] * line_format.has_level
    names += [name for name in line_format.fields if name != LEVEL]
    time_names = () if times.rule.from_record else line_format.time_names
    line = _first_line(value)
    found = _groups(line, line_format.parsed_pattern.java, time_names, names).cast("binary")
    if time_names and not line_format.parsed_time_format.is_read_by_position:
        found = times.stages.add(found)  # both the time's columns and the others use it
    rest = _rest(found, line_format, times)
    first = rest if len(names) == 1 else F.split(rest.cast("string"), _MARK)[0].cast("binary")
    has_level = [F.length(first) > 0] if needs_level else []

    def judged() -> JudgedLine:
        time = _time(found, line_format, times, has_more=bool(names))
        matches = [F.length(value) > 0, _is_mark(found, 1)] if times.rule.from_record else []
        well_formed = all_of([*matches, time.exists, time.in_range, *has_level])
        no_match = ~_is_mark(found, 1)
        return JudgedLine(
            reason=why_malformed(value, well_formed=well_formed, no_match=no_match, time=time),
            well_formed=well_formed,
            time=time.normal,
        )

    def time_key() -> TimeKey:
        if not time_names or not line_format.parsed_time_format.is_read_by_position:
            return judged().time_key
        time_format = line_format.parsed_time_format
        ends = _time_ends(found, time_format, has_more=bool(names))
        checks = [_is_mark(found, 1), ends, *has_level]
        return key_by_position(found, time_format, checks, skip=1)

    def field_of(name: str) -> Column:
        text = F.get(F.split(rest.cast("string"), _MARK), F.lit(names.index(name)))
        if name == LEVEL and line_format.level_names:
            return looked_up(text, line_format.level_names)
        return text

    plain = ParsedLine(
        judged=judged,
        time_key=time_key,
        is_at=lambda levels: first.isin(*[binary(word.encode()) for word in levels]),
        fields=field_of,
    )
    skip = None if whole else _bytes_before_time(line_format, time_names)
    return (
        plain
        if skip is None
        else _in_place(plain, value, line, line_format, skip=skip, needs_level=needs_level)
    )


def _bytes_before_time(line_format: LineFormat, time_names: Sequence[str]) -> int | None:
    """How many bytes stand before the time of every line; None where that depends on the line."""
    if time_names != (TIME,) or not line_format.parsed_time_format.is_read_by_position:
        return None
    place = line_format.parsed_pattern.places.get(TIME)
    is_whole = place is not None and place.width == line_format.parsed_time_format.width
    return place.before if place is not None and is_whole else None


def _in_place(
    line: ParsedLine,
    value: Column,
    text: Column,
    line_format: LineFormat,
    *,
    skip: int,
    needs_level: bool,
) -> ParsedLine:
    """The same for a time that stands at one place in every line that the pattern matches.

    Of the pattern no more is asked than the level, or whether it matches: the time need not be
    copied out of the line by it.

    Args:
        line: As for any place.
        value: Binary column with the record's bytes.
        text: What the pattern sees of it.
        line_format: With a pattern.
        skip: Bytes before the time.
        needs_level: Whether a line without a level is malformed.
    """
    pattern = line_format.parsed_pattern
    matching = rf"(?d)\A(?:{pattern.java})"
    level = F.lit(None)
    if line_format.has_level:
        level = F.regexp_extract(text, matching, pattern.python.groupindex[LEVEL])
    matches = level != "" if needs_level else F.rlike(text, F.lit(matching))
    return replace(
        line,
        time_key=lambda: key_by_position(
            value, line_format.parsed_time_format, [matches], skip=skip
        ),
        is_at=lambda levels: level.isin(*levels),
    )


def _first_line(value: Column) -> Column:
    """What a pattern sees of a record, as valid UTF-8: Java replaces other bytes in its own way."""
    head = F.substring(value, 1, HEAD_BYTES).cast("string")
    return F.make_valid_utf8(F.substring_index(F.substring_index(head, "\n", 1), "\r", 1))


def _groups(
    line: Column, java_pattern: str, time_names: Sequence[str], names: Sequence[str]
) -> Column:
    r"""``\n``, the groups of the time, then for each name ``\n`` and its group, in one run.

    A line in which the pattern finds nothing stays as it is and thus has no ``\n``, so no line can
    pass itself off as a result. A group that took no part is empty.
    """
    whole_line = rf"(?d)\A(?:{java_pattern})[^\n]*+"
    time = " ".join(f"${{{name}}}" for name in time_names)
    return F.regexp_replace(
        line, whole_line, f"{_MARK}{time}" + "".join(f"{_MARK}${{{name}}}" for name in names)
    )


def _time(
    found: Column, line_format: LineFormat, times: TimeReader, *, has_more: bool
) -> TimeColumns:
    if times.rule.from_record:
        return times.of_record()
    if line_format.parsed_time_format.is_read_by_position:
        return _by_position(found, line_format, has_more=has_more)
    return times.of_text(_piece(found, 1), line_format, whole=True)


def _rest(found: Column, line_format: LineFormat, times: TimeReader) -> Column:
    """The binary text behind the time and its mark."""
    if times.rule.from_record:
        return F.substring(found, 3, _TO_THE_END)
    time_format = line_format.parsed_time_format
    if time_format.is_read_by_position:
        return F.substring(found, time_format.width + 3, _TO_THE_END)
    return _piece(found, 2).cast("binary")


def _piece(found: Column, number: int) -> Column:
    """What stands before the marks (0), the time (1), or all that follows it (2)."""
    return F.get(F.split(found.cast("string"), _MARK, 3), F.lit(number))


def _by_position(found: Column, line_format: LineFormat, *, has_more: bool) -> TimeColumns:
    time_format = line_format.parsed_time_format
    normal = normalised(found, time_format, skip=1)
    places = _place_checks(found, time_format, has_more=has_more)
    absent = f"{_MARK}{line_format.absent_time}{_MARK if has_more else ''}".encode()
    is_missing = F.substring(found, 1, len(absent)) == binary(absent)
    return TimeColumns(
        is_missing=is_missing if has_more else found == binary(absent),
        exists=all_of([*places, *time_checks(normal)]),
        in_range=~is_out_of_range(normal),
        normal=normal,
    )


def _place_checks(found: Column, time_format: TimeFormat, *, has_more: bool) -> list[Column]:
    """That the time has the width of its format, and its literals are where they should be."""
    end = _time_ends(found, time_format, has_more=has_more)
    return [_is_mark(found, 1), end, *literal_checks(found, time_format, skip=1)]


def _time_ends(found: Column, time_format: TimeFormat, *, has_more: bool) -> Column:
    if has_more:
        return _is_mark(found, time_format.width + 2)
    return F.length(found) == time_format.width + 1


def _is_mark(found: Column, position: int) -> Column:
    return F.substring(found, position, 1) == binary(_MARK.encode())
