"""The ledger's part of a commit: the fence, the offsets, and the states of batch and segments."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from tally.errors import DataLossError, FencedError
from tally.ledger.batches import abandoned_error, find_batch, restored_error
from tally.ledger.contributions import lines_of_segment
from tally.ledger.dead_letters import TOTALLED_OF_SEGMENT
from tally.ledger.tables import Tables
from tally.ledger.version import check_version
from tally.model import Batch, BatchState, OffsetRange, SegmentTotals, TopicPartition
from tally.mysql.transactions import Transaction

_SEGMENTS_PER_STATEMENT: Final = 1_000

# One statement for many segments: one for each would be thousands of round trips.
_MARK_LIVE: Final = (
    "update segment s join json_table(%s, '$[*]' columns ("
    " segment_id bigint path '$[0]', records bigint path '$[1]', matched bigint path '$[2]',"
    " unmatched bigint path '$[3]', malformed bigint path '$[4]', first_offset bigint path '$[5]',"
    " last_offset bigint path '$[6]', continuations bigint path '$[7]')) found"
    " on s.segment_id = found.segment_id"
    " set s.state = 'live', s.records = found.records, s.matched = found.matched,"
    " s.unmatched = found.unmatched, s.malformed = found.malformed,"
    " s.first_offset = found.first_offset, s.last_offset = found.last_offset,"
    " s.continuations = found.continuations"
    " where s.state = 'planned'"
)


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
        " set o.next_offset = s.until_offset"
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


def mark_live(
    tx: Transaction, batch: Batch, totals_by_partition: Mapping[TopicPartition, SegmentTotals]
) -> None:
    """Make the batch's segments part of the result, with what was found in them."""
    found = [
        (segment.segment_id, *_numbers(totals_by_partition[segment.range.partition]))
        for segment in batch.segments
    ]
    for first in range(0, len(found), _SEGMENTS_PER_STATEMENT):
        part = found[first : first + _SEGMENTS_PER_STATEMENT]
        tx.execute(_MARK_LIVE, (json.dumps(part),))


def _numbers(totals: SegmentTotals) -> tuple[int | None, ...]:
    """In the order of the statement's columns."""
    return (
        totals.records,
        totals.matched,
        totals.unmatched,
        totals.malformed,
        totals.first_offset,
        totals.last_offset,
        totals.continuations,
    )


def mark_committed(
    tx: Transaction,
    batch: Batch,
    version: str,
    fingerprint: str,
    read_at: datetime | None,
    *,
    dense: bool,
) -> None:
    """Mark the batch committed.

    Args:
        tx: An open transaction.
        batch: The batch as it was claimed.
        version: Version of the code that counted.
        fingerprint: Of the rules by which it counted.
        read_at: When its read had ended, in UTC; None where that is not known.
        dense: Whether each offset of its ranges had to have a record.
    """
    tx.execute(
        "update batch set state = 'committed', committed_at = %s, committed_version = %s,"
        " format_fingerprint = %s, read_at = %s, is_dense = %s"
        " where batch_id = %s and attempt = %s and claim_token <=> %s and state = 'planned'",
        (
            tx.now(),
            version,
            fingerprint,
            read_at and read_at.replace(tzinfo=None),
            dense,
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
        f" {lines_of_segment(tables, 's.segment_id')} as written_matched,"
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
