"""Tiles: live segments that a range touches; and the ranges of batches and minutes."""

from collections.abc import Sequence

from tally.ledger.rows import range_of
from tally.ledger.tables import tables_of
from tally.model import OffsetRange, TopicPartition
from tally.mysql.transactions import Row, Transaction
from tally.planning.replay import Tile


def tiles_of(
    tx: Transaction, incarnation_id: int, partition: TopicPartition, from_offset: int, until: int
) -> tuple[Tile, ...]:
    """Live and folded segments that overlap ``[from_offset, until)``, in order."""
    here = (incarnation_id, partition.partition)
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
        Tile(
            range=range_of(row, partition),
            segment_id=row["segment_id"],
            alone=bool(row["alone"]),
            folded=bool(row["folded"]),
        )
        for row in rows
    )


def first_whole(
    tx: Transaction, incarnation_id: int, partition: TopicPartition, earliest: int
) -> int | None:
    """First offset of the first live segment that lies wholly at or after ``earliest``, or None."""
    row = tx.row(
        "select min(live_from) as first from segment"
        " where incarnation_id = %s and partition_id = %s and live_from >= %s and state = 'live'",
        (incarnation_id, partition.partition, earliest),
    )
    return row["first"] if row else None


def ranges_of_batch(tx: Transaction, pipeline: str, batch_id: int) -> list[OffsetRange]:
    """The ranges that a batch counted, of current topic generations."""
    return _ranges(
        tx.rows(
            "select i.topic, s.partition_id, s.from_offset, s.until_offset"
            " from segment s join topic_incarnation i using (incarnation_id)"
            " where s.batch_id = %s and i.pipeline = %s and i.state = 'current'"
            " and s.state in ('live', 'superseded', 'folded')",
            (batch_id, pipeline),
        )
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
    return _ranges(
        tx.rows(
            "select distinct i.topic, s.partition_id, s.from_offset, s.until_offset"
            " from segment s join topic_incarnation i using (incarnation_id)"
            f" join `{tables_of(tx, pipeline).contributions}` c using (segment_id)"
            " where i.pipeline = %s and (i.state = 'current') = %s and s.state = 'live'"
            " and c.log_time between %s and %s",
            (pipeline, current, f"{first}:00", f"{last}:00"),
        )
    )


def minutes_of(
    tx: Transaction, pipeline: str, segment_ids: Sequence[int]
) -> tuple[int, str | None, str | None]:
    """How many minutes the segments have counted lines for, the first and the last one."""
    if not segment_ids:
        return 0, None, None
    table = tables_of(tx, pipeline).contributions
    return _minutes(tx, f"`{table}` where segment_id in %s", (list(segment_ids),))


def folded_minutes_of(tx: Transaction, pipeline: str) -> tuple[int, str | None, str | None]:
    """How many minutes have lines of folded segments, the first and the last one."""
    return _minutes(tx, f"`{tables_of(tx, pipeline).folded}` where pipeline = %s", (pipeline,))


def _minutes(
    tx: Transaction, rows: str, values: tuple[object, ...]
) -> tuple[int, str | None, str | None]:
    row = tx.row(
        "select count(distinct log_time) as minutes,"
        " date_format(min(log_time), '%%Y-%%m-%%d %%H:%%i') as first,"
        f" date_format(max(log_time), '%%Y-%%m-%%d %%H:%%i') as last from {rows}",
        values,
    )
    return (int(row["minutes"]), row["first"], row["last"]) if row else (0, None, None)


def _ranges(rows: Sequence[Row]) -> list[OffsetRange]:
    return [range_of(row) for row in rows]
