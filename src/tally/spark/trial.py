"""Trying a line format on a few records, with the expressions that count."""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.lines.format import LineFormat
from tally.lines.time_rule import TimeRule
from tally.model import Record
from tally.spark.line import LineReader
from tally.spark.line_columns import read_line
from tally.spark.reading import read_errors
from tally.spark.session import session_conf

FIELD_CHARS: Final = 64
"""Code points that are shown of a field."""

_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def try_format(
    session: SparkSession, lines: Sequence[Record], line_format: LineFormat, rule: TimeRule
) -> list[tuple[str | None, str | None, Mapping[str, str]]]:
    """What a format makes of each line, in order; a line without a level lacks it.

    Args:
        session: Any Spark session.
        lines: The lines.
        line_format: The format.
        rule: How the minute follows; one that suits the format.

    Returns:
        Why it is malformed (:class:`tally.lines.format.MalformedReason`), or None; else its minute
        and its fields by name.
    """
    some_level = [next(iter(line_format.levels), "ERROR")] if line_format.has_level else []
    names = line_format.fields
    frame = session.createDataFrame(list(lines), "value binary, timestamp timestamp")
    reader = LineReader(
        line_format=line_format,
        levels=some_level,
        rule=rule,
        labels=names,
        label_chars=FIELD_CHARS,
    )
    line = read_line(reader, F.col("value"), record_time=F.col("timestamp"))
    columns = [line.well_formed_minute, *line.labels_where(line.well_formed)]
    # For few lines it takes less time to evaluate expressions without compiling them.
    with read_errors(()), session_conf(session, _INTERPRETED):
        rows = line.stages.select(frame, line.malformed_reason, *columns).collect()
    return [
        (None, minute, dict(zip(names, (text or "" for text in texts), strict=True)))
        if reason is None
        else (reason, None, {})
        for reason, minute, *texts in rows
    ]
