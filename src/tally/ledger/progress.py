"""By when all is counted, which minutes are complete, and which have changed since.

The pipeline's row of ``progress`` is locked last in a transaction, by plans and by commits: after
their batches.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final

from tally.config.pipeline import Pipeline
from tally.ledger.contributions import changed_minutes
from tally.ledger.rows import record
from tally.ledger.tables import Tables
from tally.lines.time_rule import UTC as UTC_NAME
from tally.model import Batch, TopicPartition
from tally.mysql.transactions import Transaction
from tally.planning.completeness import complete_before


class MinuteState(StrEnum):
    """What is known of the count of a minute."""

    OPEN = "open"
    COMPLETE = "complete"
    AMENDED = "amended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a pipeline has counted, in time."""

    counted_through: datetime | None = None
    """All is counted that Kafka had at this moment, by the clock of the ledger's server; None while
    that is not known of each partition."""
    complete_before: str | None = None
    """The first minute that is still open, ``YYYY-MM-DD HH:MM:00`` on the lines' own clock; None
    before the first one is complete."""
    time_zone: str = UTC_NAME
    """The zone in which that clock is read."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Whether the count of a minute is complete, and since when."""

    state: MinuteState
    """``open``; ``complete``: all is counted that reached Kafka in time; or ``amended``: changed
    after that, by a late line or a replay."""
    complete_at: datetime | None
    """When it became complete; null while it is open, and when that was pruned."""
    amended_at: datetime | None
    """When it was last changed after that; null when it was not."""
    amended_by: int | None
    """The batch that did; null when none did."""


NO_LINES: Final = Completion(
    state=MinuteState.OPEN, complete_at=None, amended_at=None, amended_by=None
)
"""Of a minute of which nothing is known, as it has never had a line."""

# Of generations nothing but the numbers is joined: rows that an update only reads are locked, too.
_SEE = """
    update partition_offset o join json_table(%s, '$[*]' columns (
        generation bigint unsigned path '$[0]', number int path '$[1]', ends bigint path '$[2]'
    )) seen on o.incarnation_id = seen.generation and o.partition_id = seen.number
    set o.seen_end = seen.ends, o.seen_at = %s,
        o.counted_through = if(o.next_offset >= seen.ends, %s, o.counted_through)
    where coalesce(o.seen_at < %s, true)
"""
_ADVANCE = """
    update progress set counted_through = %s,
        complete_before = if(time_zone = %s, greatest(coalesce(complete_before, %s), %s), %s),
        judged_before = least(judged_before, complete_before), time_zone = %s
    where pipeline = %s
"""
_LEAST = """
    select min(o.counted_through) as through, count(*) = count(o.counted_through) as is_known,
        count(distinct i.topic) as topics
    from topic_incarnation i join partition_offset o using (incarnation_id)
    where i.pipeline = %s and i.state = 'current' and i.topic in %s
"""


def now(tx: Transaction) -> datetime:
    """The time of the server's clock, in UTC: one for all processes."""
    found: datetime = tx.scalar("select utc_timestamp(6)")
    return found


def see(
    tx: Transaction,
    pipeline: str,
    ends: Iterable[tuple[TopicPartition, int]],
    seen_at: datetime,
) -> None:
    """Record ends of partitions; what is counted so far is counted through the moment.

    Args:
        tx: The planning transaction.
        pipeline: The pipeline.
        ends: See :func:`tally.planning.completeness.newly_seen`.
        seen_at: A moment before Kafka was asked, by the server's clock.
    """
    current = tx.pairs(
        "select topic, incarnation_id from topic_incarnation"
        " where pipeline = %s and state = 'current'",
        (pipeline,),
    )
    rows = [(current[p.topic], p.partition, end) for p, end in ends if p.topic in current]
    if rows:
        tx.execute(_SEE, (json.dumps(rows), seen_at, seen_at, seen_at))


def amend(tx: Transaction, tables: Tables, batch: Batch) -> None:
    """Record which complete minutes a batch changes; it locks the pipeline's row.

    Args:
        tx: The transaction that commits the batch.
        tables: Of the pipeline; the contributions are there.
        batch: The batch.
    """
    complete = _locked(tx, batch.pipeline)
    if complete is not None:
        minutes = changed_minutes(tables)
        tx.execute(
            "insert into amendment (pipeline, log_time, amended_at, batch_id)"
            f" select %s, m.log_time, utc_timestamp(6), %s from ({minutes}) m where m.log_time < %s"
            " on duplicate key update amended_at = utc_timestamp(6), batch_id = %s",
            (batch.pipeline, batch.batch_id, *[batch.batch_id] * 2, complete, batch.batch_id),
        )


def advance(tx: Transaction, pipeline: Pipeline, *, plans: bool) -> None:
    """Record by when all is counted, and which minutes are complete by that; it locks the row.

    With a partition of which nothing is known yet, by no moment. What was complete stays so, unless
    the lines' clock is read in another zone than before.

    Args:
        tx: An open transaction.
        pipeline: Has the topics, the lateness and the zone.
        plans: Whether it plans. A commit, whose process may have read an older configuration,
            records nothing where these are not the last plan's.
    """
    _locked(tx, pipeline.name)
    topics = sorted(set(pipeline.topics))
    meant = json.dumps([topics, pipeline.lateness_s, pipeline.time_zone or UTC_NAME])
    digest = sha256(meant.encode()).hexdigest()
    last = tx.scalar("select planned_by from progress where pipeline = %s", (pipeline.name,))
    if last != digest and not plans:
        return
    if last != digest:
        planned_by = "update progress set planned_by = %s where pipeline = %s"
        tx.execute(planned_by, (digest, pipeline.name))
    least = tx.one(_LEAST, (pipeline.name, topics))
    if not least["is_known"] or least["topics"] < len(topics):
        forget_through(tx, pipeline.name)
        return
    through = least["through"].replace(tzinfo=UTC)
    lateness = timedelta(seconds=pipeline.lateness_s)
    zone = pipeline.time_zone or UTC_NAME
    first_open = complete_before(through, lateness, zone)
    tx.execute(_ADVANCE, (through, zone, first_open, first_open, first_open, zone, pipeline.name))
    tx.execute(
        "delete c from completion c join progress p using (pipeline)"
        " where c.pipeline = %s and c.complete_before > p.complete_before",
        (pipeline.name,),
    )
    # What is open again, in another zone, has not changed since it is complete.
    tx.execute(
        "delete a from amendment a join progress p using (pipeline)"
        " where a.pipeline = %s and a.log_time >= p.complete_before",
        (pipeline.name,),
    )
    tx.execute(
        "insert into completion (pipeline, complete_before, completed_at)"
        " select pipeline, complete_before, utc_timestamp(6) from progress where pipeline = %s"
        # What is complete stays so since it was.
        " on duplicate key update completed_at = completion.completed_at",
        (pipeline.name,),
    )


def forget_through(tx: Transaction, pipeline: str) -> None:
    """By no moment all is counted: of what is new it is not known. It locks the pipeline's row."""
    tx.execute("update progress set counted_through = null where pipeline = %s", (pipeline,))


def progress_of(tx: Transaction, pipeline: str) -> Progress:
    """How far a pipeline has counted; nothing is known before its first plan."""
    row = tx.row(
        "select counted_through, date_format(complete_before, '%%Y-%%m-%%d %%H:%%i:%%s')"
        " as complete_before, time_zone from progress where pipeline = %s",
        (pipeline,),
    )
    return record(Progress, row) if row else Progress()


def completion_of(
    tx: Transaction, tables: Tables, pipeline: str, first: str, last: str
) -> dict[str, Completion]:
    """The minutes of a span with lines, or which had some, each with what is known of its count."""
    rows = tx.rows(
        "select date_format(log_time, '%%Y-%%m-%%d %%H:%%i:%%s') as minute, state, complete_at,"
        f" amended_at, amended_by from ({minutes_query(tables, pipeline)}) as m"
        " where log_time between %s and %s",
        (first, last),
    )
    return {row["minute"]: record(Completion, row) for row in rows}


def minutes_query(tables: Tables, pipeline: str) -> str:
    """A query for the minutes of the result: lines, and what is known of the count.

    A minute that has lost all of its lines since it was complete is among them.
    """
    # Names are validated settings, and a view has no parameters.
    of = f"'{pipeline}'"
    return (
        "select m.log_time, m.log_count, case"
        " when p.complete_before is null or m.log_time >= p.complete_before then 'open'"
        " when a.amended_at is null then 'complete' else 'amended' end as state,"
        f" (select c.completed_at from completion c where c.pipeline = {of}"
        "   and c.complete_before > m.log_time order by c.complete_before limit 1) as complete_at,"
        " a.amended_at, a.batch_id as amended_by from ("
        f"  select log_time, sum(log_count) as log_count from `{tables.result}` group by log_time"
        f"  union all select log_time, 0 from amendment where pipeline = {of}"
        f"   and log_time not in (select log_time from `{tables.result}`)"
        f") as m left join progress p on p.pipeline = {of}"
        f" left join amendment a on a.pipeline = {of} and a.log_time = m.log_time"
    )


def amended_hours(
    tx: Transaction, pipeline: str, before: datetime, after: tuple[datetime, datetime], limit: int
) -> list[tuple[datetime, datetime]]:
    """When hours have changed last whose minutes were complete, and the hours; in that order.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        before: Only hours before this one.
        after: Only what is behind this change, and this hour.
        limit: How many at most.
    """
    rows = tx.rows(
        "select max(amended_at) as changed, cast(date_format(log_time, '%%Y-%%m-%%d %%H:00:00') as"
        " datetime) as hour from amendment where pipeline = %s and amended_at >= %s"
        " and log_time < %s group by hour having (changed, hour) > (%s, %s)"
        " order by changed, hour limit %s",
        (pipeline, after[0], before, *after, limit),
    )
    return [(row["changed"], row["hour"]) for row in rows]


def amended_minutes(
    tx: Transaction, pipeline: str, span: tuple[datetime, datetime]
) -> list[datetime]:
    """The minutes of a span that have changed after they were complete, in order."""
    return tx.scalars(
        "select log_time from amendment where pipeline = %s and log_time >= %s and log_time < %s"
        " order by log_time",
        (pipeline, *span),
    )


def last_amended(tx: Transaction, pipeline: str) -> datetime:
    """When a complete minute has changed last; long ago when none has."""
    found: datetime = tx.scalar(
        "select coalesce(max(amended_at), timestamp '1970-01-01 00:00:00') from amendment"
        " where pipeline = %s",
        (pipeline,),
    )
    return found


def lines_of_hours(
    tx: Transaction, tables: Tables, hours: Iterable[datetime]
) -> dict[datetime, int]:
    """How many lines the result has of each hour."""
    asked = json.dumps([hour.isoformat() for hour in hours])
    found = tx.pairs(
        "select h.hour, coalesce(sum(r.log_count), 0) from"
        " json_table(%s, '$[*]' columns (hour datetime path '$')) as h"
        f" left join `{tables.result}` r on r.log_time >= h.hour"
        " and r.log_time < h.hour + interval 1 hour group by h.hour",
        (asked,),
    )
    return {hour: int(lines) for hour, lines in found.items()}


def forget_completions(tx: Transaction, pipeline: str, cutoff: datetime) -> int:
    """Forget when minutes became complete that were so before a moment; returns how many rows.

    A thousand rows at most. One stays, without a time, so that the next one says nothing of them.
    """
    last = tx.scalar(
        "select max(complete_before) from completion where pipeline = %s and completed_at < %s",
        (pipeline, cutoff),
    )
    unknown = "update completion set completed_at = null where pipeline = %s"
    tx.execute(f"{unknown} and complete_before = %s", (pipeline, last))
    return tx.execute(
        "delete from completion where pipeline = %s and complete_before < ("
        "  select * from (select max(complete_before) from completion"
        "    where pipeline = %s and completed_at is null) as last)"
        " order by complete_before limit 1000",
        (pipeline, pipeline),
    )


def _locked(tx: Transaction, pipeline: str) -> datetime | None:
    """The first minute that is not complete, with the row locked until the transaction ends."""
    found: datetime | None = tx.scalar(
        "select complete_before from progress where pipeline = %s for update", (pipeline,)
    )
    return found
