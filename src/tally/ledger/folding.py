"""Folding: segments that can no longer be replaced are kept as one range and one sum per minute."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.ledger.batches import Requester
from tally.ledger.contributions import delete_contributions, fold
from tally.ledger.dead_letters import delete_dead_letters
from tally.ledger.positions import PartitionRecord
from tally.ledger.rows import columns, record, records
from tally.ledger.tables import tables_of
from tally.model import BatchKind, BatchState
from tally.mysql.transactions import Row, Transaction

# Segments that one transaction folds; it locks their rows and those of their minutes.
SEGMENTS_PER_FOLD = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Folded:
    """What one transaction has folded or deleted."""

    segments: int = 0
    """Live segments that became part of a folded one."""
    rows: int = 0
    """Rows deleted from the ledger: segments, contributions, dead letters, batches."""

    def __add__(self, other: "Folded") -> "Folded":
        return Folded(segments=self.segments + other.segments, rows=self.rows + other.rows)


def foldable_partitions(tx: Transaction, pipeline: str) -> list[PartitionRecord]:
    """Every partition that the pipeline has ever counted, those of retired generations included."""
    return records(
        tx,
        PartitionRecord,
        "from topic_incarnation i join partition_offset o using (incarnation_id)"
        " where i.pipeline = %s order by i.incarnation_id, o.partition_id",
        (pipeline,),
        "o",
    )


def fold_partition(
    tx: Transaction,
    pipeline: str,
    where: PartitionRecord,
    requester: Requester,
    *,
    before: int | None,
    cutoff: datetime,
) -> Folded:
    """Fold the oldest live segments of a partition, a thousand at most.

    Steps, all in the caller's transaction:

    1. lock the topic, so that no replay adds offsets meanwhile, and choose the segments; of another
       generation than Kafka was asked about, none,
    2. add their contributions to the folded sums, and mark the batches and replays that counted
       them as pruned,
    3. write one segment for each run of adjacent ones, a folded one before them included,
    4. delete the segments that it replaces.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        where: The partition.
        requester: Who asks.
        before: Only segments that end at or before this offset, the first one that Kafka holds.
            None for a retired generation, of which Kafka holds nothing.
        cutoff: Only segments that were committed before (UTC, without its zone).
    """
    # 1
    key = (where.generation_id, where.partition.partition)
    found = tx.row(
        f"select {columns(PartitionRecord, 'i', partition_id=str(where.partition.partition))}"
        " from topic_incarnation i where i.incarnation_id = %s for update",
        (where.generation_id,),
    )
    if found is None or record(PartitionRecord, found) != where:
        return Folded()  # it was adopted, or the ledger restored, since Kafka was asked
    chosen = tx.rows(
        "select s.segment_id, s.from_offset, s.until_offset"
        " from segment s join batch b using (batch_id)"
        " where s.incarnation_id = %s and s.partition_id = %s and s.state = 'live'"
        " and b.committed_at < %s and s.until_offset <= %s"
        # Not what a planned replay is to replace.
        " and not exists (select 1 from replacement r join segment n on n.segment_id = r.segment_id"
        "   where r.replaced_id = s.segment_id and n.state = 'planned')"
        # Nor what readers may not see yet.
        " and not exists (select 1 from row_outbox x where x.segment_id = s.segment_id)"
        f" order by s.live_from limit {SEGMENTS_PER_FOLD} for update",
        (*key, cutoff, 2**63 - 1 if before is None else before),
    )
    if not chosen:
        return Folded()
    ids = [row["segment_id"] for row in chosen]
    # 2
    _mark_pruned(tx, ids)
    rows = fold(tx, tables_of(tx, pipeline), pipeline, ids)
    rows += delete_dead_letters(tx, ids)
    # 3 and 4
    for run in _runs(tx, key, chosen):
        rows += _replace_by_one(tx, run, _insert_fold(tx, pipeline, requester))
    return Folded(segments=len(ids), rows=rows)


def _runs(tx: Transaction, key: tuple[int, int], chosen: Sequence[Row]) -> list[list[Row]]:
    """Runs of adjacent segments, each with the folded segment that ends where the run begins."""
    runs: list[list[Row]] = []
    for row in chosen:
        if runs and runs[-1][-1]["until_offset"] == row["from_offset"]:
            runs[-1].append(row)
            continue
        before = tx.row(
            "select segment_id, from_offset, until_offset from segment where incarnation_id = %s"
            " and partition_id = %s and live_until = %s and state = 'folded' for update",
            (*key, row["from_offset"]),
        )
        runs.append([row] if before is None else [before, row])
    return runs


def _insert_fold(tx: Transaction, pipeline: str, requester: Requester) -> int:
    """Insert a committed batch for one folded segment."""
    return tx.insert_row(
        "batch",
        pipeline=pipeline,
        kind=BatchKind.FOLD,
        state=BatchState.COMMITTED,
        attempt=1,
        planned_at=tx.now(),
        planned_version=requester.version,
        requested_by=requester.name,
        run_id=requester.run_id,
        committed_at=tx.now(),
        committed_version=requester.version,
    )


def _replace_by_one(tx: Transaction, run: Sequence[Row], batch_id: int) -> int:
    ids = [row["segment_id"] for row in run]
    # It is planned until the others are deleted: live segments must not share a start or an end.
    sums = tx.one(
        "select min(incarnation_id) as incarnation_id, min(partition_id) as partition_id,"
        " min(from_offset) as from_offset, max(until_offset) as until_offset,"
        " min(first_offset) as first_offset, max(last_offset) as last_offset,"
        " sum(records) as records, sum(matched) as matched, sum(unmatched) as unmatched,"
        " sum(malformed) as malformed,"
        " if(count(continuations) = count(*), sum(continuations), null) as continuations"
        " from segment where segment_id in %s",
        (ids,),
    )
    segment_id = tx.insert_row("segment", batch_id=batch_id, **sums)
    tx.execute("update segment set superseded_by = %s where superseded_by in %s", (segment_id, ids))
    rows = _delete_segments(tx, ids)
    tx.execute("update segment set state = 'folded' where segment_id = %s", (segment_id,))
    return rows


def _delete_segments(tx: Transaction, segment_ids: Sequence[int]) -> int:
    """Delete segments and what they replace; returns how many rows."""
    rows = tx.execute(
        "delete from replacement where segment_id in %s or replaced_id in %s",
        (segment_ids, segment_ids),
    )
    return rows + tx.execute("delete from segment where segment_id in %s", (segment_ids,))


# What an open replay has counted and given up decides how it ends.
_NOT_AWAITED: Final = """
    not exists (select 1 from batch c join replay r on r.replay_id = c.replay_id
        where c.batch_id = {}.batch_id and r.state = 'open')
"""


def forget_history(tx: Transaction, pipeline: str, cutoff: datetime) -> Folded:
    """Delete history that no longer affects the result, at most a thousand rows of a kind.

    That is: segments that were replaced before the cutoff, with their contributions; batches that
    were abandoned before it; batches without segments.
    """
    superseded = tx.scalars(
        "select o.segment_id from segment o join segment n on n.segment_id = o.superseded_by"
        " join batch b on b.batch_id = n.batch_id"
        " where b.pipeline = %s and b.committed_at < %s and o.state = 'superseded'"
        # Only segments without predecessors: the oldest of a chain is deleted first.
        " and not exists (select 1 from segment p where p.superseded_by = o.segment_id)"
        " and not exists (select 1 from row_outbox x where x.segment_id = o.segment_id)"
        f" and {_NOT_AWAITED.format('o')} limit {SEGMENTS_PER_FOLD}",
        (pipeline, cutoff),
    )
    abandoned = tx.scalars(
        "select s.segment_id from segment s join batch b using (batch_id)"
        " join partition_offset o using (incarnation_id, partition_id)"
        " where b.pipeline = %s and b.state = 'abandoned' and b.abandoned_at < %s"
        # Abandoned ranges beyond the committed offset are needed: an adoption records them as lost.
        f" and s.until_offset <= o.next_offset and {_NOT_AWAITED.format('s')}"
        f" limit {SEGMENTS_PER_FOLD}",
        (pipeline, cutoff),
    )
    rows = 0
    if superseded:
        _mark_pruned(tx, superseded)
    if gone := superseded + abandoned:
        rows += delete_contributions(tx, tables_of(tx, pipeline), gone)
        rows += delete_dead_letters(tx, gone)
        rows += _delete_segments(tx, gone)
    empty = tx.scalars(
        "select b.batch_id from batch b where b.pipeline = %s and b.state <> 'planned'"
        " and (b.kind = 'fold' or coalesce(b.committed_at, b.abandoned_at) < %s)"
        " and not exists (select 1 from segment s where s.batch_id = b.batch_id)"
        f" limit {SEGMENTS_PER_FOLD}",
        (pipeline, cutoff),
    )
    if empty:
        rows += tx.execute("delete from batch where batch_id in %s", (empty,))
    return Folded(rows=rows)


def _mark_pruned(tx: Transaction, counted: Sequence[int]) -> None:
    """Mark what counted these segments, or replaced them: what it did is no longer known whole."""
    tx.execute(
        "update batch b join segment s using (batch_id) set b.pruned_at = %s"
        " where s.segment_id in %s and b.pruned_at is null",
        (tx.now(), counted),
    )
    found = tx.scalars(
        "select b.replay_id as id from segment s join batch b using (batch_id)"
        " where s.segment_id in %s and b.replay_id is not null"
        " union"
        " select b.replay_id from replacement r join segment s using (segment_id)"
        " join batch b using (batch_id) where r.replaced_id in %s order by id",
        (counted, counted),
    )
    if found:
        tx.execute(
            "update replay set pruned_at = %s where replay_id in %s and pruned_at is null",
            (tx.now(), found),
        )
