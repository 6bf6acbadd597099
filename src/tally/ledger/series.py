"""The result by time, as a chart needs it, and what was read meanwhile.

Changes nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.aggregates.aggregate import LINES, TIME
from tally.ledger.tables import Tables
from tally.mysql.transactions import Transaction

LARGEST: Final = 10
"""Values of a label that are told of a span."""

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


def largest_values(tx: Transaction, tables: Tables, column: str, span: Span) -> dict[str, int]:
    """The values of a label with most lines in a span, ten at most, and how many these are."""
    found = tx.pairs(
        f"select `{column}`, cast(sum(`{LINES}`) as signed) as `lines$` from `{tables.result}`"
        f" where `{TIME}` >= %s and `{TIME}` < %s"
        f" group by `{column}` order by `lines$` desc, `{column}` limit %s",
        (*span, LARGEST),
    )
    return dict(found)


def buckets_by(
    tx: Transaction,
    tables: Tables,
    span: Span,
    step: timedelta,
    column: str,
    values: Sequence[str],
) -> dict[tuple[datetime, str], int]:
    """As :func:`buckets`, by some values of a label besides."""
    if not values:
        return {}
    first, seconds = span[0], int(step.total_seconds())
    rows = tx.rows(
        f"select timestampdiff(second, %s, `{TIME}`) div {seconds:d} as `bucket$`,"
        f" `{column}` as `value$`, sum(`{LINES}`) as `lines$` from `{tables.result}`"
        f" where `{TIME}` >= %s and `{TIME}` < %s and `{column}` in %s"
        " group by `bucket$`, `value$`",
        (first, *span, list(values)),
    )
    return {(first + int(row["bucket$"]) * step, row["value$"]): int(row["lines$"]) for row in rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reads:
    """What minute batches have read in a step of time."""

    step: int
    """Its number in the span, from 0."""
    records: int
    """Records of the batches that were committed in it."""
    waiting: int | None
    """Offsets that waited when they were planned, on average; None where that is not known."""


def reads(
    tx: Transaction,
    pipeline: str,
    span: tuple[datetime, datetime],
    step: timedelta,
    step_of: Callable[[datetime], int],
) -> list[Reads]:
    """What minute batches have read in steps of a span, in order; steps without one are left out.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        span: From and until, in UTC.
        step: How long a step is.
        step_of: The number of the step of the lines' clock in which a moment is.
    """
    rows = tx.rows(
        "select step, sum(records) as records, sum(waiting) / count(distinct planned_at) as waiting"
        f" from (select timestampdiff(second, %s, b.committed_at) div {step.total_seconds():.0f}"
        "   as step, b.planned_at, b.waiting_offsets as waiting,"
        "   (select sum(s.records) from segment s where s.batch_id = b.batch_id) as records"
        "   from batch b where b.pipeline = %s and b.kind = 'ingest' and b.state = 'committed'"
        "   and b.committed_at >= %s and b.committed_at < %s) as found group by step order by step",
        (span[0], pipeline, *span),
    )
    found: dict[int, Reads] = {}
    for row in rows:
        number = step_of(span[0] + int(row["step"]) * step)
        # Where the clock is set back, an hour of the machines' comes to the one before.
        before = found.get(number, Reads(step=number, records=0, waiting=None))
        found[number] = Reads(
            step=number,
            records=before.records + int(row["records"] or 0),
            waiting=before.waiting if row["waiting"] is None else int(row["waiting"]),
        )
    return [found[number] for number in sorted(found)]


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
