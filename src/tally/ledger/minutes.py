"""Spans of the result as a chart needs them, what is behind a minute, and what a batch adds.

Changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.aggregates.aggregate import LINES, TIME
from tally.ledger.results import ResultRow, result_row
from tally.ledger.rows import range_of
from tally.ledger.tables import Tables, listed, summed
from tally.model import BatchKind, OffsetRange
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Lines of the result in equal steps of time."""

    first_minute: datetime
    """Its first minute, on the lines' own clock."""
    lines: int
    """Lines of all its minutes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """What is to be said of a minute's lines."""

    minute: datetime
    """The minute."""
    replayed: bool
    """Whether a replay has counted some of them."""
    outdated: bool
    """Whether some were counted under other rules than today's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Marks:
    """What is to be said of the minutes of a span."""

    found: list[Mark]
    """The minutes with something to be said, in order."""
    since: datetime | None
    """The minute from which on it is known; None for the whole span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MinutePart:
    """What one live segment contributes to a minute."""

    segment_id: int
    """The segment."""
    batch_id: int
    """Its batch."""
    kind: BatchKind
    """Whether a replay has counted it."""
    range: OffsetRange
    """What it has read."""
    lines: int
    """Its lines in this minute."""


def latest_minute(
    tx: Transaction, tables: Tables, until: datetime | None = None
) -> datetime | None:
    """The last minute of the result, or of what it has before ``until``; None without one."""
    where, values = ("", ()) if until is None else (f" where `{TIME}` < %s", (until,))
    row = tx.row(f"select max(`{TIME}`) as latest from `{tables.result}`{where}", values)
    return row["latest"] if row else None


def buckets(
    tx: Transaction, tables: Tables, first: datetime, until: datetime, step: timedelta
) -> list[Bucket]:
    """The lines of ``[first, until)`` in steps that begin with ``first``; empty ones left out."""
    seconds = int(step.total_seconds())
    rows = tx.rows(
        f"select timestampdiff(second, %s, `{TIME}`) div {seconds:d} as `bucket$`,"
        f" sum(`{LINES}`) as lines_of_it from `{tables.result}`"
        f" where `{TIME}` >= %s and `{TIME}` < %s group by `bucket$` order by `bucket$`",
        (first, first, until),
    )
    return [
        Bucket(first_minute=first + int(row["bucket$"]) * step, lines=int(row["lines_of_it"]))
        for row in rows
    ]


MARKED_BATCHES_MAX: Final = 1_000
MARKED_ROWS_MAX: Final = 8_000
"""Bounds of what is looked through for marks."""


def marks(
    tx: Transaction,
    tables: Tables,
    pipeline: str,
    fingerprint: str,
    first: datetime,
    until: datetime,
) -> Marks:
    """The minutes of ``[first, until)`` with something to be said of their lines.

    Nearly always few batches are replays or under other rules: then their contributions are read.
    Otherwise those of the span are, the latest ones.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        pipeline: The pipeline.
        fingerprint: Of today's rules (:func:`tally.aggregates.fingerprint.fingerprint`).
        first: The first minute.
        until: The first minute after the span.
    """
    special = _special_batches(tx, pipeline, fingerprint)
    if special is not None:
        found = _marks_of(tx, tables, special, first, until)
        if found is not None:
            return Marks(found=found, since=None)
    since = _marked_since(tx, tables, first, until)
    span = (since or first, until)
    return Marks(found=_marks_in(tx, tables, pipeline, fingerprint, *span), since=since)


def _special_batches(
    tx: Transaction, pipeline: str, fingerprint: str
) -> dict[int, tuple[bool, bool]] | None:
    """The batches that are replays, or under other rules, and which of both; None for too many."""
    limit = f"limit {MARKED_BATCHES_MAX + 1:d}"
    rows = tx.rows(
        "(select batch_id, 1 as is_replayed, format_fingerprint <> %s as is_outdated from batch"
        f" where pipeline = %s and kind = 'replay' and state = 'committed' {limit})"
        " union all (select batch_id, 0, 1 from batch"
        f" where pipeline = %s and format_fingerprint < %s and kind = 'ingest' {limit})"
        " union all (select batch_id, 0, 1 from batch"
        f" where pipeline = %s and format_fingerprint > %s and kind = 'ingest' {limit})",
        (fingerprint, pipeline, pipeline, fingerprint, pipeline, fingerprint),
    )
    if len(rows) > MARKED_BATCHES_MAX:
        return None
    return {row["batch_id"]: (bool(row["is_replayed"]), bool(row["is_outdated"])) for row in rows}


def _marks_of(
    tx: Transaction,
    tables: Tables,
    batches: Mapping[int, tuple[bool, bool]],
    first: datetime,
    until: datetime,
) -> list[Mark] | None:
    """The marks that some batches make; None when they have too many contributions."""
    if not batches:
        return []
    rows = tx.rows(
        f"select straight_join s.batch_id, c.`{TIME}` as minute from segment s"
        f" join `{tables.contributions}` c on c.segment_id = s.segment_id"
        f" where s.batch_id in %s and s.state = 'live' and c.`{TIME}` >= %s and c.`{TIME}` < %s"
        f" limit {MARKED_ROWS_MAX + 1:d}",
        (list(batches), first, until),
    )
    if len(rows) > MARKED_ROWS_MAX:
        return None
    found: dict[datetime, tuple[bool, bool]] = {}
    for row in rows:
        before, mark = found.get(row["minute"], (False, False)), batches[row["batch_id"]]
        found[row["minute"]] = (before[0] or mark[0], before[1] or mark[1])
    return [
        Mark(minute=minute, replayed=replayed, outdated=outdated)
        for minute, (replayed, outdated) in sorted(found.items())
    ]


def _marked_since(
    tx: Transaction, tables: Tables, first: datetime, until: datetime
) -> datetime | None:
    """The first minute from which on all contributions are read; None for the whole span."""
    row = tx.row(
        f"select count(*) as found, min(at) as since from (select `{TIME}` as at"
        f" from `{tables.contributions}` where `{TIME}` >= %s and `{TIME}` < %s"
        f" order by `{TIME}` desc limit {MARKED_ROWS_MAX:d}) as latest",
        (first, until),
    )
    if row is None or row["found"] < MARKED_ROWS_MAX:
        return None
    since: datetime = row["since"]  # of this minute some may be missing
    return since + timedelta(minutes=1)


def _marks_in(
    tx: Transaction,
    tables: Tables,
    pipeline: str,
    fingerprint: str,
    first: datetime,
    until: datetime,
) -> list[Mark]:
    """The marks that the contributions of a span make."""
    rows = tx.rows(
        f"select c.`{TIME}` as minute, max(b.kind = 'replay') as is_replayed,"
        " max(b.format_fingerprint <> %s) as is_outdated"
        " from segment s join batch b using (batch_id)"
        f" join `{tables.contributions}` c using (segment_id)"
        f" where c.`{TIME}` >= %s and c.`{TIME}` < %s and s.state = 'live' and b.pipeline = %s"
        " and (b.kind = 'replay' or b.format_fingerprint <> %s)"
        f" group by c.`{TIME}` order by c.`{TIME}`",
        (fingerprint, first, until, pipeline, fingerprint),
    )
    return [
        Mark(
            minute=row["minute"],
            replayed=bool(row["is_replayed"]),
            outdated=bool(row["is_outdated"]),
        )
        for row in rows
    ]


PARTS_MAX: Final = 50
"""The largest number of segments that are shown of a minute."""


def parts_of_minute(
    tx: Transaction, tables: Tables, pipeline: str, minute: datetime
) -> list[MinutePart]:
    """What is behind a minute: live segments with lines of it, most lines first.

    Folded segments are not among them: of them only a sum is known.
    """
    rows = tx.rows(
        "select s.segment_id, s.batch_id, b.kind, i.topic, s.partition_id, s.from_offset,"
        f" s.until_offset, sum(c.`{LINES}`) as lines_of_it"
        " from segment s join batch b using (batch_id)"
        " join topic_incarnation i using (incarnation_id)"
        f" join `{tables.contributions}` c using (segment_id)"
        f" where c.`{TIME}` = %s and s.state = 'live' and b.pipeline = %s"
        f" group by s.segment_id order by lines_of_it desc, s.segment_id limit {PARTS_MAX:d}",
        (minute, pipeline),
    )
    return [
        MinutePart(
            segment_id=row["segment_id"],
            batch_id=row["batch_id"],
            kind=BatchKind(row["kind"]),
            range=range_of(row),
            lines=int(row["lines_of_it"]),
        )
        for row in rows
    ]


def folded_lines(tx: Transaction, tables: Tables, pipeline: str, minute: datetime) -> int:
    """Lines of a minute of which only the sum is known, as their segments were folded."""
    row = tx.row(
        f"select coalesce(sum(`{LINES}`), 0) as lines_of_it from `{tables.folded}`"
        f" where pipeline = %s and `{TIME}` = %s",
        (pipeline, minute),
    )
    return int(row["lines_of_it"]) if row else 0


def count_touched(tx: Transaction, tables: Tables, batch_id: int) -> tuple[int, int]:
    """How many minutes, and how many rows of minutes and labels, the batch's segments touch."""
    row = tx.row(
        f"select count(distinct c.`{TIME}`) as minutes,"
        f" count(distinct {listed(tables.keys, 'c')}) as rows_touched"
        f" from `{tables.contributions}` c join segment s on s.segment_id = c.segment_id"
        " where s.batch_id = %s",
        (batch_id,),
    )
    return (int(row["minutes"]), int(row["rows_touched"])) if row else (0, 0)


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
