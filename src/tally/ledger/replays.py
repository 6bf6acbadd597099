"""Replays: recording a request with its batches, finding it, cancelling it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tally.errors import FencedError, UnknownReplayError
from tally.ledger.batches import Requester, abandon, insert_batch
from tally.model import BatchKind, OffsetRange, ReplayState
from tally.mysql.transactions import Row, Transaction
from tally.planning.replay import Piece, ReplayPlan


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
    incarnation_ids: Mapping[str, int],
    requester: Requester,
    asked: Asked,
) -> tuple[int, list[int]]:
    """Record a replay with all of its batches; the caller holds the pipeline's lock.

    Returns:
        The replay's id and those of its batches, in order.
    """
    replay_id = tx.insert(
        "insert into replay (pipeline, request, request_digest, requested_at, requested_by,"
        " requested_version, run_id, reason) values (%s, %s, %s, %s, %s, %s, %s, %s)",
        (
            pipeline,
            asked.request[:1000],
            asked.digest,
            tx.now(),
            requester.name,
            requester.version,
            requester.run_id,
            asked.reason,
        ),
    )
    return replay_id, insert_batches(tx, pipeline, replay_id, plan, incarnation_ids, requester)


def insert_batches(
    tx: Transaction,
    pipeline: str,
    replay_id: int,
    plan: ReplayPlan,
    incarnation_ids: Mapping[str, int],
    requester: Requester,
) -> list[int]:
    """Record the batches of a replay, with what each of their segments is to replace."""
    return [
        _insert_batch(
            tx,
            pipeline,
            replay_id,
            pieces,
            incarnation_ids,
            requester,
            is_of_partition=plan.by_partition,
        )
        for pieces in plan.batches
    ]


def _insert_batch(
    tx: Transaction,
    pipeline: str,
    replay_id: int,
    pieces: Sequence[Piece],
    incarnation_ids: Mapping[str, int],
    requester: Requester,
    *,
    is_of_partition: bool,
) -> int:
    ranges: dict[int, list[OffsetRange]] = {}
    for piece in pieces:
        incarnation_id = incarnation_ids[piece.range.partition.topic]
        ranges.setdefault(incarnation_id, []).append(piece.range)
    batch_id = insert_batch(
        tx,
        pipeline,
        BatchKind.REPLAY,
        ranges,
        requester,
        replay_id=replay_id,
        is_of_partition=is_of_partition,
    )
    for piece in pieces:
        row = tx.row(
            "select segment_id from segment"
            " where batch_id = %s and incarnation_id = %s and partition_id = %s",
            (
                batch_id,
                incarnation_ids[piece.range.partition.topic],
                piece.range.partition.partition,
            ),
        )
        tx.insert_many(
            "insert into replacement (segment_id, replaced_id) values (%s, %s)",
            [(row["segment_id"] if row else None, replaced) for replaced in piece.replaces],
        )
    return batch_id


def planned_batches(tx: Transaction, replay_id: int) -> list[int]:
    """Ids of the planned batches of a replay, in order."""
    rows = tx.rows(
        "select batch_id from batch where replay_id = %s and state = 'planned' order by batch_id",
        (replay_id,),
    )
    return [row["batch_id"] for row in rows]


def open_replays(tx: Transaction, pipeline: str) -> list[ReplayRecord]:
    """The pipeline's open replays, oldest first."""
    where = "where r.pipeline = %s and r.state = 'open' group by r.replay_id order by r.replay_id"
    return [_replay(row) for row in tx.rows(f"{_REPLAYS} {where}", (pipeline,))]


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
    rows = tx.rows(
        "select batch_id from batch where replay_id = %s and state = 'planned'"
        " order by batch_id for update",
        (replay_id,),
    )
    planned = [row["batch_id"] for row in rows]
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
    rows = tx.rows(f"{_REPLAYS} where r.replay_id = %s group by r.replay_id", (replay_id,))
    if not rows:
        raise UnknownReplayError(
            f"the ledger has no replay {replay_id}", next_step="tally replays lists them"
        )
    return _replay(rows[0])


def list_replays(tx: Transaction, pipeline: str, *, limit: int) -> list[ReplayRecord]:
    """The pipeline's replays, newest first."""
    rows = tx.rows(
        f"{_REPLAYS} join (select replay_id from replay where pipeline = %s"
        f" order by replay_id desc limit {limit:d}) as latest on latest.replay_id = r.replay_id"
        " group by r.replay_id order by r.replay_id desc",
        (pipeline,),
    )
    return [_replay(row) for row in rows]


_REPLAYS = """
    select r.replay_id, r.pipeline, r.state, r.request, r.requested_at, r.requested_by, r.run_id,
           r.reason, r.ended_at, r.pruned_at,
           count(distinct b.batch_id) as batches,
           count(distinct case when b.state = 'committed' then b.batch_id end) as committed,
           coalesce(sum(s.until_offset - s.from_offset), 0) as offsets,
           coalesce(sum(case when b.state = 'committed'
                             then s.until_offset - s.from_offset end), 0) as offsets_committed
    from replay r left join batch b force index (batches_of_replay)
        on b.replay_id = r.replay_id and b.state <> 'abandoned'
    left join segment s on s.batch_id = b.batch_id
"""


def _replay(row: Row) -> ReplayRecord:
    times = ("requested_at", "ended_at", "pruned_at")
    numbers = ("batches", "committed", "offsets", "offsets_committed")
    return ReplayRecord(
        **{
            **row,
            **{key: row[key] and row[key].replace(tzinfo=UTC) for key in times},
            **{key: int(row[key]) for key in numbers},
            "state": ReplayState(row["state"]),
        }
    )
