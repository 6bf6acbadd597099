"""Lines of the fixed layout as Spark expressions, by byte positions."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.pattern import HEAD_BYTES
from tally.lines.time_format import NORMAL, parse_time_format
from tally.spark.expressions import all_of, any_of, binary, valid_text
from tally.spark.parsed_line import JudgedLine, ParsedLine, why_malformed
from tally.spark.time_columns import TimeColumns, TimeReader, time_checks, timestamp
from tally.spark.time_key import TimeKey, key_by_position

_SHAPE: Final = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\z"
_TIME: Final = parse_time_format(NORMAL)
_LEVEL: Final = r"\A[^ \t\r\n]*+"
_LEVEL_ENDS: Final = (b" ", b"\t", b"\r", b"\n", b"")


def fixed_line(value: Column, times: TimeReader, *, levels: Sequence[str]) -> ParsedLine:
    """Take the records in ``value`` apart.

    Args:
        value: Binary column with the record's bytes.
        times: How the minute follows.
        levels: Those that will be looked for; with one, a line without a level is malformed.
    """
    # As many bytes as the longest level takes: Spark cuts them out once for both questions.
    width = max((len(level.encode()) for level in levels), default=0) + 2
    before_level = F.substring(value, 20, width)
    has_level = all_of([before_level >= binary(b" !"), before_level < binary(b"!")])
    level_checks = [has_level] if levels else []

    def judged() -> JudgedLine:
        if times.rule.from_record:
            time = times.of_record()
            time_is_good = [F.length(value) > 0, time.exists, time.in_range]
        else:
            time = _stated(value)
            time_is_good = [*time_checks(value), time.in_range]
        well_formed = all_of([*time_is_good, *level_checks])
        return JudgedLine(
            reason=why_malformed(value, well_formed=well_formed, no_match=F.lit(False), time=time),
            well_formed=well_formed,
            time=time.normal,
        )

    def time_key() -> TimeKey:
        if times.rule.from_record:
            return judged().time_key
        return key_by_position(value, _TIME, level_checks)

    return ParsedLine(
        judged=judged,
        time_key=time_key,
        is_at=lambda levels: any_of(_is_level(value, before_level, level) for level in levels),
        # No label is longer than some hundred characters, so the level is not looked for further.
        fields=lambda _: F.when(
            has_level,
            F.regexp_extract(valid_text(F.substring(value, 21, HEAD_BYTES)), _LEVEL, 0),
        ),
    )


def _stated(value: Column) -> TimeColumns:
    shaped = F.substring(value, 1, 19).cast("string").rlike(_SHAPE)
    return TimeColumns(
        is_missing=~shaped,
        exists=timestamp(value).isNotNull(),
        in_range=value >= binary(b"1"),
        normal=value,
    )


def _is_level(value: Column, before_level: Column, level: str) -> Column:
    """Whether a blank, ``level`` and the end of the word follow the time.

    Args:
        value: The record's bytes.
        before_level: Those behind the time, as many as the longest level takes or more.
        level: The level.
    """
    word = b" " + level.encode()
    # Two comparisons rule out nearly all other levels; every end sorts before "!".
    may_be = (before_level >= binary(word)) & (before_level < binary(word + b"!"))
    with_end = F.substring(value, 20, len(word) + 1)
    return may_be & with_end.isin(*[binary(word + end) for end in _LEVEL_ENDS])
