"""Trying a line format on a few records, with the expressions that count."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.lines.format import LineFormat
from tally.lines.time_rule import TimeRule
from tally.model import Record
from tally.spark.line_columns import LineReader, Selection
from tally.spark.reading import read_errors

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
    value, moment = F.col("value"), F.col("timestamp")
    labels = Selection(labels=names, label_chars=FIELD_CHARS)
    judging = LineReader(line_format=line_format, levels=some_level, rule=rule)
    reading = LineReader(line_format=line_format, levels=(), rule=rule, selection=labels)
    judged = judging.judged(value, record_time=moment)
    read = reading.judged(value, record_time=moment)
    with read_errors(()), _interpreted(session):
        # One after the other, as the stages of both have the same names.
        reasons = judged.stages.applied(frame).select(judged.malformed_reason).collect()
        found = read.stages.applied(frame).select(read.minute, *read.labels).collect()
    return [
        (None, minute, dict(zip(names, (text or "" for text in texts), strict=True)))
        if reason is None
        else (reason, None, {})
        for (reason,), (minute, *texts) in zip(reasons, found, strict=True)
    ]


@contextmanager
def _interpreted(session: SparkSession) -> Iterator[None]:
    """Let Spark evaluate expressions without compiling them: for few lines that is faster."""
    before = {key: session.conf.get(key) or "" for key in _INTERPRETED}
    try:
        for key, value in _INTERPRETED.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            session.conf.set(key, old)
