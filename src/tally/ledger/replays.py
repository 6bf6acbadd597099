"""Replays: recording a request with its batches, finding it and its outcome, cancelling it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.errors import FencedError, UnknownReplayError
from tally.ledger.batches import Requester, abandon, abandoned_error, find_batch, insert_batch
from tally.ledger.rows import columns, record, records
from tally.ledger.tables import tables_of_replay
from tally.model import Batch, BatchState, OffsetRange, ReplayState
from tally.mysql.transactions import Transaction
from tally.planning.replay import Piece, ReplayPlan, join_ranges


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRecord:
    """Everything that the ledger says of a replay; all times are UTC."""

    replay_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline it belongs to."""
    state: ReplayState
    """Its state."""
    request: str
    """What was asked for, as text."""
    requested_at: datetime
    """When it was requested."""
    requested_by: str
    """Who requested it."""
    run_id: str | None
    """Airflow's run id, when Airflow asked; otherwise an id of the call."""
    reason: str
    """Why it was requested."""
    ended_at: datetime | None
    """When its last batch was committed or abandoned."""
    pruned_at: datetime | None
    """When counts of it, or of what it replaced, were first pruned; its changes are unknown
    since."""
    batches: int
    """How many batches it has, abandoned ones left out."""
    committed: int
    """How many of them are committed."""
    offsets: int
    """Offsets that its batches span."""
    offsets_committed: int
    """Offsets that its committed batches span."""


_OF_REPLAY: Final = columns(
    ReplayRecord,
    "r",
    batches="count(distinct b.batch_id)",
    committed="count(distinct if(b.state = 'committed', b.batch_id, null))",
    offsets="sum(s.until_offset - s.from_offset)",
    offsets_committed="sum(if(b.state = 'committed', s.until_offset - s.from_offset, 0))",
)
_REPLAYS: Final = f"""
    select {_OF_REPLAY} from replay r left join batch b force index (batches_of_replay)
        on b.replay_id = r.replay_id and b.state <> 'abandoned'
    left join segment s on s.batch_id = b.batch_id
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What was asked for, and why."""

    request: str
    """What was asked for, as text."""
    digest: str
    """Identifies the request (:func:`tally.planning.replay_request.request_digest`)."""
    reason: str
    """Why."""


def seconds_for(tx: Transaction, pipeline: str, batches: int, offsets: int) -> float | None:
    """Estimated seconds to count so much, from the last hundred batches; None before the first.

    The shortest batch gives the fixed cost of a batch, the largest one the seconds per offset.
    """
    rows = tx.rows(
        "select sum(s.until_offset - s.from_offset) as offsets,"
        " timestampdiff(microsecond, b.claimed_at, b.committed_at) / 1e6 as seconds"
        " from (select batch_id, claimed_at, committed_at from batch"
        "   where pipeline = %s and state = 'committed' and claimed_at < committed_at"
        "   order by batch_id desc limit 100) as b"
        " join segment s using (batch_id) group by b.batch_id, b.claimed_at, b.committed_at",
        (pipeline,),
    )
    if not rows:
        return None
    largest = max(rows, key=lambda row: row["offsets"])
    shortest = min(float(row["seconds"]) for row in rows)
    return batches * shortest + offsets * float(largest["seconds"]) / float(largest["offsets"])


def insert_replay(
    tx: Transaction,
    pipeline: str,
    plan: ReplayPlan,
    generation_ids: Mapping[str, int],
    requester: Requester,
    asked: Asked,
) -> tuple[int, list[int]]:
    """Record a replay with all of its batches; the caller holds the pipeline's lock.

    Returns:
        The replay's id and those of its batches, in order.
    """
    replay_id = tx.insert_row(
        "replay",
        pipeline=pipeline,
        request=asked.request[:1000],
        request_digest=asked.digest,
        requested_at=tx.now(),
        requested_by=requester.name,
        requested_version=requester.version,
        run_id=requester.run_id,
        reason=asked.reason,
    )
    return replay_id, insert_batches(tx, pipeline, replay_id, plan, generation_ids, requester)


def insert_batches(
    tx: Transaction,
    pipeline: str,
    replay_id: int,
    plan: ReplayPlan,
    generation_ids: Mapping[str, int],
    requester: Requester,
) -> list[int]:
    """Record the batches of a replay, with what each of their segments is to replace."""
    found = []
    for pieces in plan.batches:
        batch_id = insert_batch(
            tx,
            pipeline,
            [piece.range for piece in pieces],
            generation_ids,
            requester,
            replay_id=replay_id,
            is_of_partition=plan.by_partition,
        )
        for piece in pieces:
            _insert_replaced(tx, batch_id, generation_ids[piece.range.partition.topic], piece)
        found.append(batch_id)
    return found


def _insert_replaced(tx: Transaction, batch_id: int, generation_id: int, piece: Piece) -> None:
    """Record what a segment of a batch is to replace."""
    segment_id = tx.scalar(
        "select segment_id from segment"
        " where batch_id = %s and incarnation_id = %s and partition_id = %s",
        (batch_id, generation_id, piece.range.partition.partition),
    )
    tx.insert_many(
        "insert into replacement (segment_id, replaced_id) values (%s, %s)",
        [(segment_id, replaced) for replaced in piece.replaces],
    )


def planned_batches(tx: Transaction, replay_id: int) -> list[int]:
    """Ids of the planned batches of a replay, in order."""
    return tx.scalars(
        "select batch_id from batch where replay_id = %s and state = 'planned' order by batch_id",
        (replay_id,),
    )


def open_replays(tx: Transaction, pipeline: str) -> list[ReplayRecord]:
    """The pipeline's open replays, oldest first."""
    where = "where r.pipeline = %s and r.state = 'open' group by r.replay_id order by r.replay_id"
    return records(tx, ReplayRecord, f"{_REPLAYS} {where}", (pipeline,))


def cancel(tx: Transaction, replay_id: int, *, by: str, reason: str) -> list[int]:
    """Abandon the planned batches of a replay; what it has committed stays.

    The caller holds the pipeline's lock, so that none of them is replanned meanwhile.

    Returns:
        The batches that were abandoned.

    Raises:
        UnknownReplayError: The ledger has none of that id.
        FencedError: None of its batches is planned any more. Nothing is changed.
    """
    # Locked, to wait for a running commit; its batch is then not among these.
    planned = tx.scalars(
        "select batch_id from batch where replay_id = %s and state = 'planned'"
        " order by batch_id for update",
        (replay_id,),
    )
    if not planned:
        raise FencedError(
            f"replay {replay_id} is {find_replay(tx, replay_id).state}: none of its batches "
            "is planned",
            next_step="tally replays",
        )
    for batch_id in planned:
        abandon(tx, batch_id, by=by, reason=reason)
    # Cancelled even if its committed batches cover all ranges: an operator has ended it.
    tx.execute("update replay set state = 'cancelled' where replay_id = %s", (replay_id,))
    return planned


def find_replay(tx: Transaction, replay_id: int) -> ReplayRecord:
    """One replay.

    Raises:
        UnknownReplayError: The ledger has none of that id.
    """
    where = "where r.replay_id = %s group by r.replay_id"
    for found in records(tx, ReplayRecord, f"{_REPLAYS} {where}", (replay_id,)):
        return found
    raise UnknownReplayError(
        f"the ledger has no replay {replay_id}", next_step="tally replays lists them"
    )


def list_replays(tx: Transaction, pipeline: str, *, limit: int) -> list[ReplayRecord]:
    """The pipeline's replays, newest first."""
    return records(
        tx,
        ReplayRecord,
        f"{_REPLAYS} join (select replay_id from replay where pipeline = %s"
        f" order by replay_id desc limit {limit:d}) as latest on latest.replay_id = r.replay_id"
        " group by r.replay_id order by r.replay_id desc",
        (pipeline,),
    )


def find_replay_of_run(
    tx: Transaction, pipeline: str, requester: Requester, digest: str
) -> tuple[int, list[int]] | None:
    """The replay that a run has already recorded for a request; None without one.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        requester: The run, and the user who triggered it.
        digest: Of the request (:func:`tally.planning.replay_request.request_digest`).

    Returns:
        Its id and its batches as they were first planned, in order, whatever their state.
    """
    replay_id = tx.scalar(
        "select replay_id from replay where pipeline = %s and cast(run_id as binary) = %s"
        " and cast(requested_by as binary) = %s and request_digest = %s"
        " order by replay_id limit 1",
        (pipeline, requester.run_id, requester.name, digest),
    )
    if replay_id is None:
        return None
    # Replanned batches have no run id.
    batch_ids = tx.scalars(
        "select batch_id from batch where replay_id = %s and cast(run_id as binary) = %s"
        " order by batch_id",
        (replay_id, requester.run_id),
    )
    return replay_id, batch_ids


def standing_for(tx: Transaction, batch_id: int) -> list[int]:
    """The batches that count a batch's ranges: itself, or those that were replanned in its place.

    Raises:
        UnknownBatchError: The ledger has none of that id.
        FencedError: It was abandoned, and no other batches count all of its ranges.
    """
    batch = find_batch(tx, batch_id)
    if batch.state is not BatchState.ABANDONED:
        return [batch_id]
    later = [find_batch(tx, number) for number in _later_in_replay(tx, batch)]
    if not _cover(later, batch):
        raise abandoned_error(tx, batch_id)
    return [number.batch_id for number in later]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayTotals:
    """What the committed batches of a replay have read and found."""

    records: int
    """Records read."""
    matched: int
    """Lines counted."""
    malformed: int
    """Records that could not be understood."""
    continuations: int | None
    """Unmatched records that begin no line; None where they were not all counted by themselves."""
    minutes: int
    """Minutes that they have counted lines for."""


def totals_of(tx: Transaction, replay_id: int) -> ReplayTotals:
    """Totals of the committed batches so far, including ranges that were replaced since."""
    here = "from batch b join segment s using (batch_id)"
    which = "where b.replay_id = %s and b.state = 'committed'"
    found = tx.one(
        "select sum(s.records) as records, sum(s.matched) as matched,"
        " sum(s.malformed) as malformed,"
        " if(count(s.continuations) = count(*), coalesce(sum(s.continuations), 0), null)"
        f"   as continuations {here} {which}",
        (replay_id,),
    )
    minutes = tx.scalar(
        f"select count(distinct c.log_time) {here}"
        f" join `{tables_of_replay(tx, replay_id).contributions}` c using (segment_id) {which}",
        (replay_id,),
    )
    return record(ReplayTotals, found, minutes=minutes)


def _later_in_replay(tx: Transaction, batch: Batch) -> list[int]:
    """Later batches of the same replay that overlap a batch, abandoned ones left out."""
    return tx.scalars(
        "select distinct b.batch_id from segment o join segment s"
        " on s.incarnation_id = o.incarnation_id and s.partition_id = o.partition_id"
        " and s.from_offset < o.until_offset and o.from_offset < s.until_offset"
        " join batch b on b.batch_id = s.batch_id"
        " where o.batch_id = %s and b.replay_id = %s and b.batch_id > %s"
        " and b.state <> 'abandoned' order by b.batch_id",
        (batch.batch_id, batch.replay_id, batch.batch_id),
    )


def _cover(others: list[Batch], batch: Batch) -> bool:
    wide = join_ranges([s.range for other in others for s in other.segments], touching=True)
    return all(any(_holds(w, s.range) for w in wide) for s in batch.segments)


def _holds(outer: OffsetRange, inner: OffsetRange) -> bool:
    return (
        outer.partition == inner.partition
        and outer.from_offset <= inner.from_offset
        and inner.until_offset <= outer.until_offset
    )
