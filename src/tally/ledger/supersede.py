"""Superseding: the step of a replay's commit that replaces earlier segments."""

from typing import Final

from tally.errors import OvertakenError
from tally.model import Batch
from tally.mysql.transactions import Transaction


def supersede(tx: Transaction, batch: Batch) -> None:
    """Supersede every segment that the batch was planned to replace, or none.

    A segment can be superseded only once, so two replays of it conflict there. Offsets that were
    never counted have no segment, so a batch with such offsets locks its topic's row instead;
    minute batches never take that lock.

    Raises:
        OvertakenError: Another replay has replaced one of them, or counted the same offsets, since
            the plan. Nothing is changed.
    """
    planned = tx.row(
        "select count(*) as segments, coalesce(sum(o.until_offset - o.from_offset), 0) as offsets"
        " from replacement r join segment s using (segment_id)"
        " join segment o on o.segment_id = r.replaced_id where s.batch_id = %s",
        (batch.batch_id,),
    )
    if planned is None or planned["offsets"] < batch.offsets:
        tx.rows(
            "select topic from topic_incarnation where incarnation_id in"
            " (select incarnation_id from segment where batch_id = %s)"
            " order by incarnation_id for update",
            (batch.batch_id,),
        )
    replaced = tx.execute(
        "update segment n join replacement r on r.segment_id = n.segment_id"
        " join segment o on o.segment_id = r.replaced_id"
        " set o.state = 'superseded', o.superseded_by = n.segment_id"
        " where n.batch_id = %s and o.state = 'live'",
        (batch.batch_id,),
    )
    if planned is None or replaced != planned["segments"]:
        raise OvertakenError(
            f"batch {batch.batch_id}: of {planned['segments'] if planned else 0} segments that it "
            f"was to replace only {replaced} are still part of the result; another replay came "
            "first",
            next_step=f"tally replay --resume {batch.replay_id} replans what is left",
        )
    for segment in batch.segments:
        _check_alone(tx, batch, segment.segment_id)
    _restore_losses(tx, batch)


def _check_alone(tx: Transaction, batch: Batch, segment_id: int) -> None:
    """Raise if another live segment overlaps the range.

    Live segments do not overlap each other, so the last that starts before the range ends suffices.
    """
    row = tx.row(
        "select o.segment_id, o.from_offset, o.until_offset from segment n join segment o"
        " on o.incarnation_id = n.incarnation_id and o.partition_id = n.partition_id"
        " and o.live_from < n.until_offset"
        " where n.segment_id = %s and o.segment_id <> n.segment_id"
        " order by o.live_from desc limit 1",
        (segment_id,),
    )
    mine = next(s.range for s in batch.segments if s.segment_id == segment_id)
    if row is not None and row["until_offset"] > mine.from_offset:
        raise OvertakenError(
            f"batch {batch.batch_id}: {mine} was counted by segment {row['segment_id']}, "
            f"[{row['from_offset']}, {row['until_offset']}), meanwhile",
            next_step=f"tally replay --resume {batch.replay_id} replans what is left",
        )


def _restore_losses(tx: Transaction, batch: Batch) -> None:
    """Mark accepted losses in the range as restored: Kafka held their records after all.

    A loss may be larger than a batch; the parts outside the range stay accepted.
    """
    for start, until, outside in (
        ("l.from_offset", "s.from_offset", "l.from_offset < s.from_offset"),
        ("s.until_offset", "l.until_offset", "s.until_offset < l.until_offset"),
    ):
        tx.execute(
            "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset,"
            " cause, state, detected_at, decided_at, decided_by, reason)"
            f" select l.incarnation_id, l.partition_id, {start}, {until}, l.cause, l.state,"
            f" l.detected_at, l.decided_at, l.decided_by, l.reason {_LOSSES_IN_RANGE}"
            f" and {outside}",
            (batch.batch_id,),
        )
    found = tx.rows(
        "select l.lost_range_id, greatest(l.from_offset, s.from_offset) as from_offset,"
        f" least(l.until_offset, s.until_offset) as until_offset {_LOSSES_IN_RANGE}",
        (batch.batch_id,),
    )
    for row in found:
        tx.execute(
            "update lost_range set state = 'restored', from_offset = %s, until_offset = %s,"
            " reason = left(concat(reason, '; counted by batch ', %s), 1000)"
            " where lost_range_id = %s",
            (row["from_offset"], row["until_offset"], batch.batch_id, row["lost_range_id"]),
        )


_LOSSES_IN_RANGE: Final = """
    from lost_range l join segment s using (incarnation_id, partition_id)
    where s.batch_id = %s and l.state = 'accepted' and l.cause = 'expired'
    and s.from_offset < l.until_offset and l.from_offset < s.until_offset
"""
