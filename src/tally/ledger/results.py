"""Reading the result: its rows, and what a batch adds to them.

Changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tally.aggregates.aggregate import LINES, TIME
from tally.ledger.rows import record, records
from tally.ledger.series import buckets, largest_values
from tally.ledger.tables import SPAN, Tables, listed, summed, tables_of
from tally.model import OffsetRange
from tally.mysql.transactions import Row, Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRow:
    """One row of the result, or of what a batch adds to it."""

    log_time: str
    """The minute on the lines' own clock, ``YYYY-MM-DD HH:MM:00``."""
    labels: Mapping[str, str] = field(metadata={"omitted": "when empty"})
    """Value by label column; absent in JSON for a result without labels."""
    log_count: int
    """Lines."""
    log_bytes: int | None = field(default=None, metadata={"omitted": "when None"})
    """Bytes; None, and absent in JSON, where they are not measured."""


def result_row(tables: Tables, row: Row) -> ResultRow:
    """A row of ``tables.columns`` as a value."""
    labels = {label.column: row[label.column] for label in tables.labels}
    return record(ResultRow, {"log_bytes": None, **row}, labels=labels)


def result_rows(
    tx: Transaction,
    tables: Tables,
    *,
    last: int | None = None,
    since: str | None = None,
    until: str | None = None,
    before: str | None = None,
) -> list[ResultRow]:
    """The result, oldest minute first, then by labels.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        last: How many of the latest minutes; all when None.
        since: The first minute; no limit when None.
        until: The last minute, itself included; no limit when None.
        before: The first minute after the span; no limit when None, and no minute at all when ''.
    """
    if before == "":
        return []
    bounds = {f"`{TIME}` >= %s": since, f"`{TIME}` <= %s": until, f"`{TIME}` < %s": before}
    asked = {sql: minute for sql, minute in bounds.items() if minute is not None}
    where = f" where {' and '.join(asked)}" if asked else ""
    latest = ""
    if last is not None:
        latest = (
            f" join (select distinct `{TIME}` from `{tables.result}`{where}"
            f" order by `{TIME}` desc limit {last:d}) as latest using (`{TIME}`)"
        )
        where = ""
    rows = tx.rows(
        f"select {listed(tables.columns)} from `{tables.result}`{latest}{where}"
        f" order by {listed(tables.keys)}",
        list(asked.values()),
    )
    return [result_row(tables, row) for row in rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompleteMinute:
    """The last minute that is complete."""

    log_time: str
    """The minute on the lines' own clock, ``YYYY-MM-DD HH:MM:00``."""
    log_count: int
    """Its lines; 0 where it has none."""
    largest: Mapping[str, Mapping[str, int]]
    """Of each label the values with most lines, ten at most, and how many these are."""


def last_complete_minute(tx: Transaction, tables: Tables, complete_before: str) -> CompleteMinute:
    """The minute before the first one that is not complete."""
    minute = datetime.fromisoformat(complete_before) - timedelta(minutes=1)
    span = (minute, minute + timedelta(minutes=1))
    lines = sum(buckets(tx, tables, span, span[1] - span[0]).values())
    largest = {
        label.column: largest_values(tx, tables, label.column, span)
        for label in tables.labels
        if label.is_used
    }
    return CompleteMinute(log_time=f"{minute}", log_count=lines, largest=largest)


def count_touched(tx: Transaction, tables: Tables, batch_id: int) -> tuple[int, int]:
    """How many minutes, and how many rows of minutes and labels, the batch's segments touch."""
    minutes, rows = tx.one(
        f"select count(distinct c.`{TIME}`) as minutes,"
        f" count(distinct {listed(tables.keys, 'c')}) as rows_touched"
        f" from `{tables.contributions}` c join segment s on s.segment_id = c.segment_id"
        " where s.batch_id = %s",
        (batch_id,),
    ).values()
    return minutes, rows


def top_rows(tx: Transaction, tables: Tables, batch_id: int, limit: int) -> list[ResultRow]:
    """The rows to which the batch contributed most lines, with its part of them, most first."""
    rows = tx.rows(
        f"select {listed(tables.keys, 'c')}, {summed(tables.sums, 'c')}"
        f" from `{tables.contributions}` c join segment s on s.segment_id = c.segment_id"
        " where s.batch_id = %s"
        f" group by {listed(tables.keys, 'c')}"
        f" order by sum(c.`{LINES}`) desc, {listed(tables.keys, 'c')} limit %s",
        (batch_id, limit),
    )
    return [result_row(tables, row) for row in rows]


def ranges_of_minutes(
    tx: Transaction, pipeline: str, first: str, last: str, *, current: bool = True
) -> list[OffsetRange]:
    """Ranges of live segments with lines in a span of minutes, of current topic generations.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        first: The first minute of the lines' own clock, ``YYYY-MM-DD HH:MM``.
        last: The last one, itself included.
        current: False for the ranges of earlier generations instead.
    """
    return records(
        tx,
        OffsetRange,
        "from segment s join topic_incarnation i using (incarnation_id)"
        f" join `{tables_of(tx, pipeline).contributions}` c using (segment_id)"
        " where i.pipeline = %s and (i.state = 'current') = %s and s.state = 'live'"
        " and c.log_time between %s and %s group by s.segment_id",
        (pipeline, current, f"{first}:00", f"{last}:00"),
    )


Minutes = tuple[int, str | None, str | None]
"""How many, the first and the last one."""


def counted_in(tx: Transaction, segment_ids: Sequence[int]) -> tuple[int, int]:
    """How many records segments have read, and how many lines of them are counted."""
    records, lines = tx.one(
        "select sum(records) as records, sum(matched) as matched from segment"
        " where segment_id in %s",
        (list(segment_ids),),
    ).values()
    return int(records or 0), int(lines or 0)


def minutes_of(tx: Transaction, pipeline: str, segment_ids: Sequence[int]) -> Minutes:
    """How many minutes the segments have counted lines for, the first and the last one."""
    if not segment_ids:
        return 0, None, None
    table = tables_of(tx, pipeline).contributions
    return _minutes(tx, f"`{table}` where segment_id in %s", (list(segment_ids),))


def folded_minutes_of(tx: Transaction, pipeline: str) -> Minutes:
    """How many minutes have lines of folded segments, the first and the last one."""
    return _minutes(tx, f"`{tables_of(tx, pipeline).folded}` where pipeline = %s", (pipeline,))


def _minutes(tx: Transaction, rows: str, values: tuple[object, ...]) -> Minutes:
    minutes, first, last = tx.one(f"select {SPAN} from {rows}", values).values()
    return minutes, first, last
