"""Reading the result: its rows, spans of it as a chart needs them, and what is behind a minute.

Changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tally.aggregates.aggregate import LINES, TIME
from tally.ledger.rows import record, records
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


LARGEST: Final = 10
"""Values of a label that are told of a minute."""


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
    among = f"from `{tables.result}` where `{TIME}` = %s"
    lines = tx.scalar(f"select coalesce(sum(`{LINES}`), 0) {among}", (minute,))
    largest = {
        label.column: tx.pairs(
            f"select `{label.column}`, cast(sum(`{LINES}`) as signed) as `lines$` {among}"
            f" group by `{label.column}` order by `lines$` desc, `{label.column}` limit %s",
            (minute, LARGEST),
        )
        for label in tables.labels
        if label.is_used
    }
    return CompleteMinute(log_time=f"{minute}", log_count=int(lines), largest=largest)


Span = tuple[datetime, datetime]
"""A first minute, and the first one after the span."""


def latest_minute(
    tx: Transaction, tables: Tables, until: datetime | None = None
) -> datetime | None:
    """The last minute of the result, or of what it has before ``until``; None without one."""
    where, values = ("", ()) if until is None else (f" where `{TIME}` < %s", (until,))
    latest: datetime | None = tx.scalar(
        f"select max(`{TIME}`) from `{tables.result}`{where}", values
    )
    return latest


def buckets(tx: Transaction, tables: Tables, span: Span, step: timedelta) -> dict[datetime, int]:
    """The lines of a span in steps that begin with its first minute, by the first minute of each.

    In order; steps without a line are left out.
    """
    first, seconds = span[0], int(step.total_seconds())
    found = tx.pairs(
        f"select timestampdiff(second, %s, `{TIME}`) div {seconds:d} as `bucket$`,"
        f" sum(`{LINES}`) from `{tables.result}`"
        f" where `{TIME}` >= %s and `{TIME}` < %s group by `bucket$` order by `bucket$`",
        (first, *span),
    )
    return {first + int(number) * step: int(lines) for number, lines in found.items()}


MARKED_BATCHES_MAX: Final = 1_000
MARKED_ROWS_MAX: Final = 8_000
"""Bounds of what is looked through for marks."""


def marks(
    tx: Transaction, tables: Tables, pipeline: str, fingerprint: str, span: Span
) -> tuple[list[datetime], list[datetime], datetime | None]:
    """The minutes of a span that a replay or other rules have counted.

    Nearly always few batches are replays or under other rules: then their contributions are read.
    Otherwise those of the span are, the latest ones.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        pipeline: The pipeline.
        fingerprint: Of today's rules (:func:`tally.aggregates.aggregate.fingerprint`).
        span: The minutes.

    Returns:
        Those with lines that a replay has counted, those with lines under other rules, both in
        order; and the minute from which on they are known, None for the whole span.
    """
    special = _special_batches(tx, pipeline, fingerprint)
    # By the key of each segment's contributions, or by that of the minutes.
    hint, since, of_which = "straight_join", None, "s.batch_id in %s"
    if not special:
        return [], [], None
    if len(special) > MARKED_BATCHES_MAX or _has_many_rows(tx, tables, special, span):
        since = _marked_since(tx, tables, span)
        span = (since or span[0], span[1])
        hint, of_which = "", "(b.kind = 'replay' or b.format_fingerprint <> %s)"
    rows = tx.rows(
        f"select {hint} c.`{TIME}` as minute, max(b.kind = 'replay') as replayed,"
        " max(b.format_fingerprint <> %s) as outdated"
        f" from batch b join segment s using (batch_id)"
        f" join `{tables.contributions}` c using (segment_id)"
        f" where c.`{TIME}` >= %s and c.`{TIME}` < %s and s.state = 'live' and b.pipeline = %s"
        f" and {of_which} group by c.`{TIME}` order by c.`{TIME}`",
        (fingerprint, *span, pipeline, special if hint else fingerprint),
    )
    replayed = [row["minute"] for row in rows if row["replayed"]]
    return replayed, [row["minute"] for row in rows if row["outdated"]], since


def _special_batches(tx: Transaction, pipeline: str, fingerprint: str) -> list[int]:
    """The batches that are replays or under other rules; of many some more than are read."""
    limit = f"limit {MARKED_BATCHES_MAX + 1:d}"
    return tx.scalars(
        "(select batch_id from batch"
        f" where pipeline = %s and kind = 'replay' and state = 'committed' {limit})"
        " union all (select batch_id from batch"
        f" where pipeline = %s and format_fingerprint < %s and kind = 'ingest' {limit})"
        " union all (select batch_id from batch"
        f" where pipeline = %s and format_fingerprint > %s and kind = 'ingest' {limit})",
        (pipeline, pipeline, fingerprint, pipeline, fingerprint),
    )


def _has_many_rows(tx: Transaction, tables: Tables, batch_ids: Sequence[int], span: Span) -> bool:
    """Whether batches have more contributions in a span than are looked through."""
    return tx.exists(
        f"select straight_join 1 from segment s"
        f" join `{tables.contributions}` c on c.segment_id = s.segment_id"
        f" where s.batch_id in %s and s.state = 'live' and c.`{TIME}` >= %s and c.`{TIME}` < %s"
        f" limit 1 offset {MARKED_ROWS_MAX:d}",
        (batch_ids, *span),
    )


def _marked_since(tx: Transaction, tables: Tables, span: Span) -> datetime | None:
    """The first minute from which on all contributions are read; None for the whole span."""
    found, since = tx.one(
        f"select count(*) as found, min(at) as since from (select `{TIME}` as at"
        f" from `{tables.contributions}` where `{TIME}` >= %s and `{TIME}` < %s"
        f" order by `{TIME}` desc limit {MARKED_ROWS_MAX:d}) as latest",
        span,
    ).values()
    # Of the first minute some may be missing.
    return None if found < MARKED_ROWS_MAX else since + timedelta(minutes=1)


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
