"""Replays: recording a request with its batches, finding it and its outcome, cancelling it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tally.errors import FencedError, TallyError, UnknownReplayError
from tally.ledger import batches
from tally.ledger.rows import records
from tally.ledger.tables import tables_of
from tally.model import Batch, BatchState, KnownTopic, ReplayState
from tally.mysql.transactions import Row, Transaction
from tally.planning.replay import ReplayPlan, join_ranges


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRecord:
    """Everything that the ledger has of a replay; all times are UTC."""

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


@dataclass(frozen=True, slots=True)
class Requested:
    """A replay that is recorded in the ledger."""

    replay_id: int
    """The ledger's key."""
    batches: tuple[Batch, ...]
    """Its batches, in the order in which they are run."""

    @property
    def batch_ids(self) -> list[int]:
        """The ledger's keys of its batches."""
        return [batch.batch_id for batch in self.batches]


def _replays(tx: Transaction, which: str, key: str | int) -> list[ReplayRecord]:
    return records(
        tx,
        ReplayRecord,
        "from replay r left join batch b force index (batches_of_replay)"
        " on b.replay_id = r.replay_id and b.state <> 'abandoned'"
        f" left join segment s on s.batch_id = b.batch_id {which}"
        " group by r.replay_id order by r.replay_id desc",
        (key,),
        "r",
        batches="count(distinct b.batch_id)",
        committed="count(distinct if(b.state = 'committed', b.batch_id, null))",
        offsets="sum(s.until_offset - s.from_offset)",
        offsets_committed="sum(if(b.state = 'committed', s.until_offset - s.from_offset, 0))",
    )


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
    known: Mapping[str, KnownTopic],
    requester: batches.Requester,
    **asked: str,
) -> Requested:
    """Record a replay with all of its batches; the caller holds the pipeline's lock.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        plan: What is read and replaced.
        known: The ledger's current topics.
        requester: Who asks.
        asked: ``request`` and ``reason`` as text, and ``request_digest``, which identifies the
            request (:func:`tally.planning.replay_request.request_digest`).

    """
    replay_id = tx.insert_row(
        "replay",
        pipeline=pipeline,
        requested_at=tx.now(),
        requested_by=requester.name,
        requested_version=requester.version,
        run_id=requester.run_id,
        **asked,
    )
    batch_ids = insert_batches(tx, pipeline, replay_id, plan, known, requester)
    return Requested(replay_id, tuple(batches.find_batches(tx, batch_ids)))


def insert_batches(
    tx: Transaction,
    pipeline: str,
    replay_id: int,
    plan: ReplayPlan,
    known: Mapping[str, KnownTopic],
    requester: batches.Requester,
) -> list[int]:
    """Record the batches of a replay, with what each of their segments is to replace."""
    generation_ids = {topic: entry.generation_id for topic, entry in known.items()}
    found = []
    for pieces in plan.batches:
        batch_id = batches.insert_batch(
            tx,
            pipeline,
            [piece.range for piece in pieces],
            generation_ids,
            requester,
            replay_id=replay_id,
            is_of_partition=plan.by_partition,
        )
        segments = {s.range: s.segment_id for s in batches.find_batch(tx, batch_id).segments}
        tx.insert_many(
            "insert into replacement (segment_id, replaced_id) values %s",
            [(segments[piece.range], replaced) for piece in pieces for replaced in piece.replaces],
        )
        found.append(batch_id)
    return found


def planned_batches(tx: Transaction, replay_id: int, *, lock: bool = False) -> list[int]:
    """Ids of the planned batches of a replay, in order."""
    return tx.scalars(
        "select batch_id from batch where replay_id = %s and state = 'planned' order by batch_id"
        + (" for update" if lock else ""),
        (replay_id,),
    )


def open_replays(tx: Transaction, pipeline: str) -> list[ReplayRecord]:
    """The pipeline's open replays, newest first."""
    return _replays(tx, "where r.pipeline = %s and r.state = 'open'", pipeline)


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
    planned = planned_batches(tx, replay_id, lock=True)
    if not planned:
        raise FencedError(
            f"replay {replay_id} is {find_replay(tx, replay_id).state}: none of its batches "
            "is planned",
            next_step="tally replays",
        )
    for batch_id in planned:
        batches.abandon(tx, batch_id, by=by, reason=reason)
    # Cancelled even if its committed batches cover all ranges: an operator has ended it.
    tx.execute("update replay set state = 'cancelled' where replay_id = %s", (replay_id,))
    return planned


def find_replay(tx: Transaction, replay_id: int) -> ReplayRecord:
    """One replay.

    Raises:
        UnknownReplayError: The ledger has none of that id.
    """
    for found in _replays(tx, "where r.replay_id = %s", replay_id):
        return found
    raise UnknownReplayError(
        f"the ledger has no replay {replay_id}", next_step="tally replays lists them"
    )


def list_replays(tx: Transaction, pipeline: str, *, limit: int) -> list[ReplayRecord]:
    """The pipeline's replays, newest first."""
    latest = (
        f"select replay_id from replay where pipeline = %s order by replay_id desc limit {limit:d}"
    )
    return _replays(tx, f"join ({latest}) as latest on latest.replay_id = r.replay_id", pipeline)


def find_replay_of_run(
    tx: Transaction, pipeline: str, requester: batches.Requester, digest: str
) -> Requested | None:
    """The replay that a run has already recorded for a request; None without one.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        requester: The run, and the user who triggered it.
        digest: Of the request (:func:`tally.planning.replay_request.request_digest`).

    Returns:
        It with its batches as they were first planned, whatever their state; without any once all
        were pruned.
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
    return Requested(replay_id, tuple(batches.find_batches(tx, batch_ids) if batch_ids else []))


def standing_for(tx: Transaction, batch_id: int) -> list[int]:
    """The batches that count a batch's ranges: itself, or those that were replanned in its place.

    Raises:
        UnknownBatchError: The ledger has none of that id.
        FencedError: It was abandoned, and no other batches count all of its ranges.
    """
    batch = batches.find_batch(tx, batch_id)
    if batch.state is not BatchState.ABANDONED:
        return [batch_id]
    # Of the same replay, not abandoned, and overlapping.
    later = tx.scalars(
        "select distinct b.batch_id from segment o join segment s"
        " on s.incarnation_id = o.incarnation_id and s.partition_id = o.partition_id"
        " and s.from_offset < o.until_offset and o.from_offset < s.until_offset"
        " join batch b on b.batch_id = s.batch_id"
        " where o.batch_id = %s and b.replay_id = %s and b.batch_id > %s"
        " and b.state <> 'abandoned' order by b.batch_id",
        (batch_id, batch.replay_id, batch_id),
    )
    counted = [r for number in later for r in batches.find_batch(tx, number).ranges]
    if join_ranges([*counted, *batch.ranges], touching=True) != join_ranges(counted, touching=True):
        raise batches.abandoned_error(tx, batch_id)
    return later


def standing_for_all(
    tx: Transaction, batch_ids: Sequence[int]
) -> tuple[list[int], dict[int, TallyError]]:
    """As :func:`standing_for` of several batches, and the error of each that nothing stands for."""
    standing: list[int] = []
    abandoned: dict[int, TallyError] = {}
    for batch_id in batch_ids:
        try:
            standing += standing_for(tx, batch_id)
        except FencedError as error:
            abandoned[batch_id] = error
    return standing, abandoned


def totals_of(tx: Transaction, pipeline: str, replay_id: int) -> Row:
    """What the committed batches of a replay have read, including ranges that were replaced since.

    Returns:
        ``records``, ``matched`` and ``malformed``; ``continuations``, None where they were not all
        counted by themselves; ``minutes`` that they have counted lines for.
    """
    here = "from batch b join segment s using (batch_id)"
    which = "where b.replay_id = %s and b.state = 'committed'"
    found = tx.one(
        "select coalesce(sum(s.records), 0) as records, coalesce(sum(s.matched), 0) as matched,"
        " coalesce(sum(s.malformed), 0) as malformed,"
        " if(count(s.continuations) = count(*), coalesce(sum(s.continuations), 0), null)"
        f"   as continuations {here} {which}",
        (replay_id,),
    )
    minutes = tx.scalar(
        f"select count(distinct c.log_time) {here}"
        f" join `{tables_of(tx, pipeline).contributions}` c using (segment_id) {which}",
        (replay_id,),
    )
    return {key: None if n is None else int(n) for key, n in {**found, "minutes": minutes}.items()}
