"""Lines of the fixed layout as Spark expressions, by byte positions."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.format import HEAD_BYTES, MalformedReason
from tally.spark.expressions import all_of, any_of, binary
from tally.spark.parsed_line import ParsedLine, is_out_of_range
from tally.spark.time_columns import time_checks, timestamp

_SHAPE: Final = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\z"
_LEVEL: Final = r"\A[^ \t\r\n]*+"
_LEVEL_ENDS: Final = (b" ", b"\t", b"\r", b"\n", b"")


def fixed_line(value: Column, *, needs_level: bool) -> ParsedLine:
    """Take the records in ``value`` apart.

    Args:
        value: Binary column with the record's bytes.
        needs_level: Whether a line without a level is malformed.
    """
    before_level = F.substring(value, 20, 2)
    has_level = all_of([before_level > binary(b"  "), before_level < binary(b"!")])
    level_checks = [has_level] if needs_level else []
    well_formed = all_of([*time_checks(value), *level_checks, value >= binary(b"1")])
    shaped = F.substring(value, 1, 19).cast("string").rlike(_SHAPE)
    reason = (
        F.when(well_formed, F.lit(None))
        .when(value.isNull(), MalformedReason.NULL_VALUE.value)
        .when(F.length(value) == 0, MalformedReason.EMPTY_VALUE.value)
        .when(~shaped, MalformedReason.NO_TIME.value)
        .when(timestamp(value).isNull(), MalformedReason.TIME_INVALID.value)
        .when(is_out_of_range(value), MalformedReason.TIME_OUT_OF_RANGE.value)
        .otherwise(MalformedReason.NO_LEVEL.value)
    )
    return ParsedLine(
        reason=reason,
        well_formed=well_formed,
        time=value,
        is_at=lambda levels: any_of(_is_level(value, 20, level) for level in levels),
        # No label is longer than some hundred characters, so the level is not looked for further.
        fields=lambda _: F.when(
            has_level,
            F.regexp_extract(F.substring(value, 21, HEAD_BYTES).cast("string"), _LEVEL, 0),
        ),
    )


def _is_level(value: Column, position: int, level: str) -> Column:
    """Whether a blank, ``level`` and the end of the word stand at ``position``."""
    word = b" " + level.encode()
    return F.substring(value, position, len(word) + 1).isin(
        *[binary(word + end) for end in _LEVEL_ENDS]
    )
