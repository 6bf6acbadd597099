"""JSON lines as Spark expressions: each record is parsed once, then its fields are looked up.

``from_json`` is not used: it reads no further than the end of the first document, keeps an object
that a later duplicate of another type should replace, and prints numbers as 64-bit floats.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.names import LEVEL
from tally.lines.format import JsonPath, LineFormat
from tally.lines.options import Accepted, LineOptions
from tally.spark.expressions import all_of, any_of, binary, usual_blanks, valid_text
from tally.spark.parsed_line import JudgedLine, ParsedLine, why_malformed
from tally.spark.time_columns import (
    TimeColumns,
    TimeReader,
    behind_time,
    is_normalised,
    is_out_of_range,
    literal_checks,
    normalised,
)

RECORD_END: Final = "807365129044172659"
"""The digits of a number that follows each record, in an array with it.

Spark stops reading where the outermost value ends. This number is the second element only where all
of the record is one value. A number can be written in one way only (a string could be escaped), so
a record without these digits cannot put the number there itself; one that has them is malformed.
"""


def json_line(
    value: Column, line_format: LineFormat, times: TimeReader, *, needs_level: bool
) -> ParsedLine:
    """Take the records in ``value`` apart.

    Args:
        value: Binary column with the record's bytes.
        line_format: With JSON fields.
        times: How the minute follows.
        needs_level: Whether a line without a level is malformed.
    """
    text = times.stages.add(readable(valid_text(value), line_format.options))
    document = F.concat(F.lit("["), text, F.lit(f",{RECORD_END}]"))
    parsed = times.stages.add(F.try_parse_json(document))
    # As JSON a string has its quotes: only the number itself is equal.
    second = F.to_json(F.try_variant_get(parsed, "$[1]", "variant"))
    is_whole = all_of([second == RECORD_END, ~F.contains(text, F.lit(RECORD_END))])
    is_object = F.try_variant_get(parsed, "$[0]", "map<string,variant>").isNotNull()

    def stated(name: str) -> Column:
        return F.coalesce(*[_at(parsed, path) for path in line_format.paths_of(name)])

    def find(name: str) -> Column:
        text, default = stated(name), line_format.options.default_level
        if name != LEVEL or not default:
            return text
        return F.coalesce(F.nullif(text, F.lit("")), F.lit(default))

    def judged() -> JudgedLine:
        if times.rule.from_record:
            time = times.of_record()
        else:
            time = _time([stated(name) for name in line_format.time_names], line_format, times)
        has_level = [F.length(find(LEVEL)) > 0] if needs_level else []
        # An object before all else: any path of another document has no value.
        is_read = [is_whole, is_object] if times.rule.from_record else [is_whole]
        well_formed = all_of([*is_read, time.exists, time.in_range, *has_level])
        no_match = ~F.coalesce(is_whole & is_object, F.lit(False))
        return JudgedLine(
            reason=why_malformed(value, well_formed=well_formed, no_match=no_match, time=time),
            well_formed=well_formed,
            time=time.normal,
        )

    def is_at(levels: Sequence[str]) -> Column:
        # '' stands for the default level.
        level = F.coalesce(stated(LEVEL), F.lit("")) if "" in levels else stated(LEVEL)
        return level.isin(*levels)

    return ParsedLine(judged=judged, time_key=lambda: judged().time_key, is_at=is_at, fields=find)


def readable(text: Column, options: LineOptions) -> Column:
    """A document as Spark reads it in the way of ``docs/line-formats.md``."""
    text = _without_odd_escapes(text)
    if Accepted.NAN not in options:
        return text
    may_have = F.contains(text, F.lit("NaN")) | F.contains(text, F.lit("Infinity"))
    return F.when(may_have, F.regexp_replace(text, _NO_NUMBER, "$1null")).otherwise(text)


# From the last one on, so that no string is looked into.
_NO_NUMBER: Final = (
    r'(?s)\G((?:[^"NI-]++|"(?:[^"\\]|\\.)*+"|-(?!Infinity))*+)(?:NaN|-?Infinity)(?![A-Za-z0-9])'
)


def _without_odd_escapes(text: Column) -> Column:
    r"""A document without the escapes that Spark reads in a way of its own.

    ``?`` stands for each escape of half a surrogate pair: Spark sorts an object's keys with their
    halves, stores ``?`` for each, and searches among 32 and more keys by order, so it would miss
    keys of such an object. An escape with a digit beyond ASCII is made one that no JSON has: of
    such a digit Spark looks at the last eight bits alone, so ``\u004ĵ`` would be ``E``.
    """
    # So that a backslash before "u" is never the second one of an escaped backslash.
    separate = F.regexp_replace(text, r"\\\\", r"\\u005c")
    usual = F.regexp_replace(F.regexp_replace(separate, _HALF, "?"), _BEYOND, r"\\x")
    may_have = F.contains(text, F.lit(r"\u")) & any_of(
        [
            F.contains(text, F.lit(r"\ud")),
            F.contains(text, F.lit(r"\uD")),
            F.rlike(text, F.lit(_BEYOND)),
        ]
    )
    return F.when(may_have, usual).otherwise(text)


_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF: Final = rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}"
_BEYOND: Final = r"\\u(?=[0-9a-fA-F]{0,3}[^\x00-\x7f])"


def _time(texts: Sequence[Column], line_format: LineFormat, times: TimeReader) -> TimeColumns:
    """The time that a text starts with, or a date and a clock with a blank between them."""
    time_format, text = line_format.parsed_time_format, texts[0]
    if len(texts) > 1:
        text = F.array_join(F.array(*texts), " ", "")
    text = times.stages.add(usual_blanks(text, line_format.options))
    clock = _clock(text, line_format, times)
    return times.at_offset(clock, behind_time(text, time_format)) if times.rule.by_offset else clock


def _clock(text: Column, line_format: LineFormat, times: TimeReader) -> TimeColumns:
    time_format = line_format.parsed_time_format
    if not time_format.is_read_by_position:
        return times.of_text(text, line_format, whole=False)
    stated = text.cast("binary")
    normal = times.stages.add(normalised(stated, time_format))
    after = F.substring(stated, time_format.width + 1, 1)
    no_digit = (after < binary(b"0")) | (after > binary(b"9"))
    return TimeColumns(
        is_missing=F.coalesce(text, F.lit("")) == line_format.absent_time,
        exists=all_of([*literal_checks(stated, time_format), no_digit, is_normalised(normal)]),
        in_range=~is_out_of_range(normal),
        normal=normal,
    )


def _at(parsed: Column, path: JsonPath) -> Column:
    """The value at a path of the record's object as a string; null when there is none."""
    keys = "".join(f'["{key}"]' if "'" in key else f"['{key}']" for key in path)
    return F.try_variant_get(parsed, f"$[0]{keys}", "string")
