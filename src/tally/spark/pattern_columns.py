"""Lines of a pattern as Spark expressions: one run of a regular expression for each."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.labels import LEVEL
from tally.lines.format import HEAD_BYTES, LineFormat
from tally.lines.time_format import TimeFormat
from tally.spark.expressions import all_of, binary, looked_up
from tally.spark.parsed_line import ParsedLine, is_out_of_range, why_malformed
from tally.spark.time_columns import literal_checks, normalised, time_checks

_MARK: Final = "\n"
_TO_THE_END: Final = 2**31 - 1


def pattern_line(
    value: Column, line_format: LineFormat, *, as_text: bool, needs_level: bool
) -> ParsedLine:
    """Take the records in ``value`` apart.

    Args:
        value: Binary column with the record's bytes.
        line_format: With a pattern.
        as_text: Whether fields of the line will be asked for, which are valid UTF-8.
        needs_level: Whether a line without a level is malformed.
    """
    time_format, pattern = line_format.parsed_time_format, line_format.parsed_pattern
    # The level first: of the groups it alone has its place in every line.
    names = [LEVEL] * line_format.has_level
    names += [name for name in line_format.fields if name != LEVEL]
    line = F.make_valid_utf8(_first_line(value)) if as_text else _first_line(value)
    found = _groups(line, pattern.java, names).cast("binary")
    time = normalised(found, time_format, skip=1)
    rest = F.substring(found, time_format.width + 3, _TO_THE_END)
    first = rest if len(names) == 1 else F.split(rest.cast("string"), _MARK)[0].cast("binary")
    has_time = all_of([*_place_checks(found, time_format, names), *time_checks(time)])
    has_level = [F.length(first) > 0] if needs_level else []
    well_formed = all_of([has_time, ~is_out_of_range(time), *has_level])

    def field_of(name: str) -> Column:
        text = F.get(F.split(rest.cast("string"), _MARK), F.lit(names.index(name)))
        if name == LEVEL and line_format.level_names:
            return looked_up(text, line_format.level_names)
        return text

    return ParsedLine(
        reason=why_malformed(
            value,
            well_formed=well_formed,
            no_match=~_is_mark(found, 1),
            no_time=_is_mark(found, 2) if names else F.length(found) == 1,
            has_time=has_time,
            time=time,
        ),
        well_formed=well_formed,
        time=time,
        is_at=lambda levels: first.isin(*[binary(word.encode()) for word in levels]),
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


def _place_checks(found: Column, time_format: TimeFormat, names: Sequence[str]) -> list[Column]:
    """That the time has the width of its format, and its literals are where they should be."""
    end = (
        _is_mark(found, time_format.width + 2)
        if names
        else F.length(found) == time_format.width + 1
    )
    return [_is_mark(found, 1), end, *literal_checks(found, time_format, skip=1)]


def _is_mark(found: Column, position: int) -> Column:
    return F.substring(found, position, 1) == binary(_MARK.encode())
