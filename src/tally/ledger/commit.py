"""The ledger's part of a commit: the fence, the offsets or what is replaced, and the states."""

import json
from collections.abc import Mapping
from dataclasses import astuple, fields
from datetime import datetime
from typing import Final

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.errors import DataLossError, FencedError, OvertakenError
from tally.ledger.batches import abandoned_error, find_batch, restored_error
from tally.ledger.contributions import lines_of_segment
from tally.ledger.dead_letters import TOTALLED_OF_SEGMENT
from tally.ledger.schema import check_version
from tally.ledger.tables import Tables
from tally.model import Batch, BatchState, OffsetRange, Segment, SegmentTotals, TopicPartition
from tally.mysql.transactions import Transaction


def lock_attempt(tx: Transaction, batch: Batch) -> bool:
    """Lock the batch's row until the transaction ends, if this claim may still commit it.

    Only the newest claim may. Its token is random, as attempts and ids repeat in a ledger that was
    restored to an older state; what it was claimed for must still be what is planned.

    Returns:
        Whether the batch is to be committed; False when it was committed before.

    Raises:
        FencedError: A newer attempt owns the batch, it was abandoned, or it is another one than
            was claimed.
        SchemaError: Newer code has migrated the ledger since.
    """
    now = find_batch(tx, batch.batch_id, lock=True)
    if _identity(now) != _identity(batch):
        raise restored_error(batch.batch_id)
    if now.state is BatchState.COMMITTED:
        return False
    if now.state is BatchState.ABANDONED:
        raise abandoned_error(tx, batch.batch_id)
    if now.claim != batch.claim or _planned(now) != _planned(batch):
        if now.attempt <= batch.attempt:
            raise restored_error(batch.batch_id)
        raise FencedError(
            f"batch {batch.batch_id}: attempt {now.attempt} has replaced attempt {batch.attempt}",
            next_step=f"tally show {batch.batch_id}",
        )
    check_version(tx)
    return True


def _identity(batch: Batch) -> tuple[object, ...]:
    """What never changes of a batch, also when its segments are pruned."""
    return batch.pipeline, batch.kind, batch.replay_id, batch.planned_at


def _planned(batch: Batch) -> list[tuple[int, str, str, OffsetRange]]:
    """What a batch is to read, with the ledger's keys."""
    return [(s.segment_id, s.cluster_id, s.topic_id, s.range) for s in batch.segments]


def move_offsets(tx: Transaction, batch: Batch) -> None:
    """Compare-and-set the committed offsets of all partitions at once.

    Raises:
        FencedError: A partition's committed offset is not the batch's first. Nothing is changed.
    """
    moved = tx.execute(
        "update partition_offset o join segment s using (incarnation_id, partition_id)"
        " set o.next_offset = s.until_offset, o.counted_through ="
        " if(s.until_offset >= o.seen_end, o.seen_at, o.counted_through)"
        " where s.batch_id = %s and s.state = 'planned' and o.next_offset = s.from_offset",
        (batch.batch_id,),
    )
    if moved != len(batch.segments):
        rows = tx.rows(
            "select i.topic, o.partition_id, o.next_offset from segment s"
            " join partition_offset o using (incarnation_id, partition_id)"
            " join topic_incarnation i using (incarnation_id) where s.batch_id = %s",
            (batch.batch_id,),
        )
        current = ", ".join(f"{r['topic']}/{r['partition_id']} at {r['next_offset']}" for r in rows)
        planned = ", ".join(str(segment.range) for segment in batch.segments)
        raise FencedError(
            f"batch {batch.batch_id}: {moved} of {len(batch.segments)} partitions could move; "
            f"planned {planned}; the ledger now has {current}",
            next_step="tally audit",
        )


def supersede(tx: Transaction, batch: Batch) -> None:
    """Supersede every segment that the batch was planned to replace, or none.

    A segment can be superseded only once, so two replays of it conflict there. Offsets that were
    never counted have no segment, so a batch with such offsets locks its topic's row instead;
    minute batches never take that lock.

    Raises:
        OvertakenError: Another replay has replaced one of them, or counted the same offsets, since
            the plan. Nothing is changed.
    """
    planned = tx.one(
        "select count(*) as segments, coalesce(sum(o.until_offset - o.from_offset), 0) as offsets"
        " from replacement r join segment s using (segment_id)"
        " join segment o on o.segment_id = r.replaced_id where s.batch_id = %s",
        (batch.batch_id,),
    )
    if planned["offsets"] < batch.offsets:
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
    if replaced != planned["segments"]:
        raise OvertakenError(
            f"batch {batch.batch_id}: of {planned['segments']} segments that it was to "
            f"replace only {replaced} are still part of the result; another replay came "
            "first",
            next_step=f"tally replay --resume {batch.replay_id} replans what is left",
        )
    for segment in batch.segments:
        _check_alone(tx, batch, segment)
    _check_decided(tx, batch)
    _restore_losses(tx, batch)


def _check_alone(tx: Transaction, batch: Batch, segment: Segment) -> None:
    """Raise if another live segment overlaps the range.

    Live segments do not overlap each other, so the last that starts before the range ends suffices.
    """
    row = tx.row(
        "select o.segment_id, o.from_offset, o.until_offset from segment n join segment o"
        " on o.incarnation_id = n.incarnation_id and o.partition_id = n.partition_id"
        " and o.live_from < n.until_offset"
        " where n.segment_id = %s and o.segment_id <> n.segment_id"
        " order by o.live_from desc limit 1",
        (segment.segment_id,),
    )
    if row is not None and row["until_offset"] > segment.range.from_offset:
        raise OvertakenError(
            f"batch {batch.batch_id}: {segment.range} was counted by segment {row['segment_id']}, "
            f"[{row['from_offset']}, {row['until_offset']}), meanwhile",
            next_step=f"tally replay --resume {batch.replay_id} replans what is left",
        )


def _check_decided(tx: Transaction, batch: Batch) -> None:
    """Raise if a range was truncated since the plan, and nobody has decided about it.

    Its offsets may have other records by now than those whose counts are replaced.
    """
    row = tx.row(
        "select l.from_offset, l.until_offset from segment s"
        " join lost_range l using (incarnation_id, partition_id)"
        " where s.batch_id = %s and l.state = 'open' and l.cause = 'truncated'"
        " and s.from_offset < l.until_offset and l.from_offset < s.until_offset limit 1",
        (batch.batch_id,),
    )
    if row is not None:
        raise DataLossError(
            f"batch {batch.batch_id}: [{row['from_offset']}, {row['until_offset']}) was truncated: "
            "other records may have these offsets, and no operator has decided about it",
            next_step=f"tally losses list {batch.pipeline}",
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
            " l.detected_at, l.decided_at, l.decided_by, l.reason"
            f" from {_LOSSES} where {_IN_RANGE} and {outside}",
            (batch.batch_id,),
        )
    tx.execute(
        f"update {_LOSSES} set l.state = 'restored',"
        " l.from_offset = greatest(l.from_offset, s.from_offset),"
        " l.until_offset = least(l.until_offset, s.until_offset),"
        " l.reason = left(concat(l.reason, '; counted by batch ', %s), 1000)"
        f" where {_IN_RANGE}",
        (batch.batch_id, batch.batch_id),
    )


# A batch has one segment of a partition.
_LOSSES: Final = "lost_range l join segment s using (incarnation_id, partition_id)"
_IN_RANGE: Final = """
    s.batch_id = %s and l.state = 'accepted' and l.cause = 'expired'
    and s.from_offset < l.until_offset and l.from_offset < s.until_offset
"""


_SEGMENTS_PER_STATEMENT: Final = 1_000
_TOTALS: Final = tuple(field.name for field in fields(SegmentTotals))

# One statement for many segments: one for each would be thousands of round trips.
_MARK_LIVE: Final = (
    "update segment s join json_table(%s, '$[*]' columns (segment_id bigint path '$[0]', "
    + ", ".join(f"{name} bigint path '$[{at}]'" for at, name in enumerate(_TOTALS, 1))
    + ")) found on s.segment_id = found.segment_id set s.state = 'live', "
    + ", ".join(f"s.{name} = found.{name}" for name in _TOTALS)
    + " where s.state = 'planned'"
)


def mark_live(
    tx: Transaction, batch: Batch, totals_by_partition: Mapping[TopicPartition, SegmentTotals]
) -> None:
    """Make the batch's segments part of the result, with what was found in them."""
    found = [
        (segment.segment_id, *astuple(totals_by_partition[segment.range.partition]))
        for segment in batch.segments
    ]
    for first in range(0, len(found), _SEGMENTS_PER_STATEMENT):
        part = found[first : first + _SEGMENTS_PER_STATEMENT]
        tx.execute(_MARK_LIVE, (json.dumps(part),))


def mark_committed(
    tx: Transaction, batch: Batch, pipeline: Pipeline, version: str, read_at: datetime | None
) -> None:
    """Mark the batch committed.

    Args:
        tx: An open transaction.
        batch: The batch as it was claimed.
        pipeline: By whose rules it was counted.
        version: Version of the code that counted.
        read_at: When its read had ended, in UTC; None where that is not known.
    """
    tx.execute(
        "update batch set state = 'committed', committed_at = %s, committed_version = %s,"
        " format_fingerprint = %s, read_at = %s, is_dense = %s"
        " where batch_id = %s and attempt = %s and claim_token <=> %s and state = 'planned'",
        (
            tx.now(),
            version,
            fingerprint(pipeline),
            read_at,
            not pipeline.is_sparse,
            batch.batch_id,
            *batch.claim,
        ),
    )


def check_written(tx: Transaction, tables: Tables, batch_id: int) -> None:
    """Raise unless what was written is what was counted.

    Raises:
        DataLossError: The lines or dead letters of a segment are not as many as were counted.
    """
    wrong = tx.rows(
        "select s.segment_id, s.state, s.matched, s.malformed,"
        f" {lines_of_segment(tables)} as written_matched,"
        " (select count(*) from dead_letter d where d.segment_id = s.segment_id)"
        "   as written_malformed,"
        f" {TOTALLED_OF_SEGMENT} as totalled_malformed"
        " from segment s where s.batch_id = %s"
        " having s.state <> 'live' or s.matched <> written_matched"
        "   or s.malformed <> written_malformed or s.malformed <> totalled_malformed",
        (batch_id,),
    )
    if wrong:
        raise DataLossError(
            f"batch {batch_id}: what was written is not what was counted: {wrong}",
            next_step=f"tally run {batch_id}",
        )
