"""What a replay is to replace, which segments replaced which, and what that changed in the result.

Changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tally.aggregates.aggregate import LINES
from tally.formatting import plural, time_span
from tally.ledger.contributions import changes_of_replay
from tally.ledger.rows import columns, record, records
from tally.ledger.tables import tables_of
from tally.model import OffsetRange, TopicPartition
from tally.mysql.transactions import Transaction
from tally.planning.replay import Tile

_SPAN: Final = (
    "count(distinct log_time) as minutes,"
    " date_format(min(log_time), '%%Y-%%m-%%d %%H:%%i') as first_minute,"
    " date_format(max(log_time), '%%Y-%%m-%%d %%H:%%i') as last_minute"
)
"""How many minutes some rows have, the first and the last one."""


def tiles_of(
    tx: Transaction, generation_id: int, partition: TopicPartition, from_offset: int, until: int
) -> tuple[Tile, ...]:
    """Live and folded segments that overlap ``[from_offset, until)``, in order."""
    here = (generation_id, partition.partition)
    rows = tx.rows(
        "select s.from_offset, s.until_offset, s.segment_id, s.state = 'folded' as folded,"
        " exists (select 1 from lost_range l where l.incarnation_id = s.incarnation_id"
        "   and l.partition_id = s.partition_id and l.cause = 'missing' and l.state = 'accepted'"
        "   and l.from_offset < s.until_offset and s.from_offset < l.until_offset) as alone"
        " from segment s where s.incarnation_id = %s and s.partition_id = %s"
        # Live segments do not overlap, so only the last one before the range can reach into it.
        " and s.live_from >= coalesce((select max(live_from) from segment"
        "   where incarnation_id = %s and partition_id = %s and live_from <= %s), %s)"
        " and s.live_from < %s and s.live_until > %s order by s.from_offset",
        (*here, *here, from_offset, from_offset, until, from_offset),
    )
    return tuple(
        record(Tile, row, range=record(OffsetRange, row, partition=partition)) for row in rows
    )


def first_whole(
    tx: Transaction, generation_id: int, partition: TopicPartition, earliest: int
) -> int | None:
    """First offset of the first live segment that lies wholly at or after ``earliest``, or None."""
    first: int | None = tx.scalar(
        "select min(live_from) from segment"
        " where incarnation_id = %s and partition_id = %s and live_from >= %s and state = 'live'",
        (generation_id, partition.partition, earliest),
    )
    return first


def ranges_of_batch(tx: Transaction, pipeline: str, batch_id: int) -> list[OffsetRange]:
    """The ranges that a batch counted, of current topic generations."""
    return records(
        tx,
        OffsetRange,
        f"select {columns(OffsetRange, 's')}"
        " from segment s join topic_incarnation i using (incarnation_id)"
        " where s.batch_id = %s and i.pipeline = %s and i.state = 'current'"
        " and s.state in ('live', 'superseded', 'folded')",
        (batch_id, pipeline),
    )


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
        f"select distinct {columns(OffsetRange, 's')}"
        " from segment s join topic_incarnation i using (incarnation_id)"
        f" join `{tables_of(tx, pipeline).contributions}` c using (segment_id)"
        " where i.pipeline = %s and (i.state = 'current') = %s and s.state = 'live'"
        " and c.log_time between %s and %s",
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
    minutes, first, last = tx.one(f"select {_SPAN} from {rows}", values).values()
    return minutes, first, last


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """A segment that another one replaces."""

    segment_id: int
    """The segment that is replaced."""
    batch_id: int
    """The batch that counted it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What a replay has changed in the result so far."""

    minutes: int
    """Minutes that count more or fewer lines than before."""
    first_minute: str | None
    """The first of them, ``YYYY-MM-DD HH:MM``."""
    last_minute: str | None
    """The last of them."""
    lines_more: int
    """Lines that minutes gained."""
    lines_fewer: int
    """Lines that minutes lost."""

    def __str__(self) -> str:
        """``2 minutes of the result changed, … to …: 3 lines more, 1,000 fewer``."""
        if not self.minutes:
            return "no minute of the result has changed"
        when = time_span(self.first_minute, self.last_minute)
        return (
            f"{plural(self.minutes, 'minute')} of the result changed, {when}: "
            f"{plural(self.lines_more, 'line')} more, {self.lines_fewer:,} fewer"
        )


def replaced_by(tx: Transaction, batch_id: int) -> dict[int, list[Replaced]]:
    """What each segment of a batch was planned to replace, by segment, in order."""
    rows = tx.rows(
        "select r.segment_id, r.replaced_id, o.batch_id as replaced_batch_id"
        " from segment s join replacement r using (segment_id)"
        " join segment o on o.segment_id = r.replaced_id"
        " where s.batch_id = %s order by r.segment_id, r.replaced_id",
        (batch_id,),
    )
    found: dict[int, list[Replaced]] = {}
    for row in rows:
        one = Replaced(segment_id=row["replaced_id"], batch_id=row["replaced_batch_id"])
        found.setdefault(row["segment_id"], []).append(one)
    return found


def successors_of(tx: Transaction, batch_id: int) -> dict[int, int]:
    """The batch that superseded each superseded segment of a batch, by segment."""
    return tx.pairs(
        "select s.segment_id, n.batch_id from segment s"
        " join segment n on n.segment_id = s.superseded_by where s.batch_id = %s",
        (batch_id,),
    )


def changes_of(tx: Transaction, pipeline: str, replay_id: int) -> Changes | None:
    """What the committed batches of a replay count, less what they replaced.

    None when it is no longer known, because some of it was pruned.
    """
    if tx.scalar("select pruned_at from replay where replay_id = %s", (replay_id,)) is not None:
        return None
    row = tx.one(
        f"select {_SPAN}, sum(greatest(`{LINES}`, 0)) as lines_more,"
        f" sum(-least(`{LINES}`, 0)) as lines_fewer"
        f" from ({changes_of_replay(tables_of(tx, pipeline))}) as changes",
        (replay_id, replay_id),
    )
    return record(Changes, row)
