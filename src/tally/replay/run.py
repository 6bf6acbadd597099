"""Running a replay batch after batch, and what has become of it.

:func:`run_replay` can be called again at any time, by any process, until all batches are committed.
Ingest batches and other replays may run concurrently.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tally.context import Context
from tally.counting.batch import Ran
from tally.counting.outcomes import RanView
from tally.counting.run import run_batches, together
from tally.errors import FencedError, ReplayRefusedError
from tally.ledger import batches, positions, replays
from tally.ledger.replacements import Changes, changes_of
from tally.ledger.replays import ReplayRecord
from tally.model import BatchState, ReplayState
from tally.mysql.transactions import Transaction
from tally.replay.preview import generation_ids, other_generations, plan_against, snapshot_of
from tally.views import view_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaysView:
    """Replays of a pipeline."""

    pipeline: str
    """The pipeline."""
    replays: tuple[ReplayRecord, ...]
    """Newest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayOutcome(ReplayRecord):
    """Everything that the ledger holds about a replay, and what it has read and changed so far."""

    records: int
    """Records that its committed batches have read."""
    matched: int
    """Lines that they have counted."""
    malformed: int
    """Records that could not be understood."""
    continuations: int | None
    """Unmatched records that begin no line; null where they were not all counted by themselves."""
    minutes: int
    """Minutes that they have counted lines for."""
    changes: Changes | None
    """What has changed in the result; null when this is no longer known, because counts of the
    replay, or of what it replaced, were pruned."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to count."""
        return self.state is ReplayState.DONE


def list_replays(
    ctx: Context, pipeline: str, *, state: ReplayState | None = None, limit: int = 20
) -> ReplaysView:
    """The pipeline's replays, newest first.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        state: Only those in this state.
        limit: The largest number of replays that are searched.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = replays.list_replays(tx, pipeline, limit=limit)
    wanted = [r for r in found if state in {None, r.state}]
    return ReplaysView(pipeline=pipeline, replays=tuple(wanted))


def replay(ctx: Context, replay_id: int) -> ReplayRecord:
    """One replay, as the ledger has it now.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
    """
    with ctx.database.transaction(read_only=True) as tx:
        return replays.find_replay(tx, replay_id)


def run_replay(ctx: Context, replay_id: int) -> Iterator[Ran]:
    """Run the planned batches of a replay, one after another, or those of many partitions at once.

    Yields:
        The outcome of each batch, as soon as it is committed.

    Raises:
        UnknownReplayError: The ledger has no such replay.
        FencedError: Another process runs it.
        DataLossError: Kafka no longer serves what was planned; what was counted stays.
        RetryableError: A server did not answer; call it again.
    """
    with ctx.database.transaction(read_only=True) as tx:
        replays.find_replay(tx, replay_id)
    while True:
        with ctx.database.transaction(read_only=True) as tx:
            left = replays.planned_batches(tx, replay_id)
            now = together(batches.find_batches(tx, left), left[0]) if left else []
        if not now:
            return
        yield from run_or_replan(ctx, [batch.batch_id for batch in now])


def run_or_replan(
    ctx: Context, batch_ids: Sequence[int], *, on_ran: Callable[[Ran], None] = lambda _: None
) -> list[Ran]:
    """Run batches of either kind; a replay's batch is replanned when another replay came first.

    The arguments are those of :func:`tally.counting.run.run_batches`.

    Raises:
        TallyError: As there.
    """
    return run_batches(ctx, batch_ids, replan=replan_batch, on_ran=on_ran)


def replan_batch(ctx: Context, batch_id: int) -> list[int]:
    """Replan the ranges of a replay's batch against the current live segments, and abandon it.

    Returns:
        Ids of the batches that replace it.

    Raises:
        FencedError: It is committed or abandoned already.
        ReplayRefusedError: Its ranges can no longer be reprocessed; nothing is changed.
    """
    with ctx.database.transaction(read_only=True) as tx:
        batch = batches.find_batch(tx, batch_id)
        pipeline = ctx.settings.pipeline(batch.pipeline)
        snapshot = snapshot_of(ctx.kafka, pipeline, positions.known_topics(tx, pipeline.name))
    replay_id = batch.replay_id
    if replay_id is None:
        raise FencedError(
            f"batch {batch_id} does not belong to a replay", next_step=f"tally run {batch_id}"
        )
    requester = dataclasses.replace(ctx.requester, run_id=None)

    def work(tx: Transaction) -> list[int]:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        now = batches.find_batch(tx, batch_id, lock=True)
        if now.planned_at != batch.planned_at:
            raise batches.restored_error(batch_id)
        if now.state is not BatchState.PLANNED:
            raise FencedError(
                f"batch {batch_id} is {now.state}", next_step=f"tally show {batch_id}"
            )
        known = positions.known_topics(tx, pipeline.name)
        plan = plan_against(tx, pipeline, known, snapshot, [s.range for s in now.segments])
        causes = [*other_generations(now, known), *map(str, plan.refusals)]
        if causes:
            raise ReplayRefusedError(
                f"batch {batch_id} cannot be replanned: {causes[0]}",
                next_step="give it up, what was counted stays: "
                f"tally abandon {batch_id} --reason '…'",
            )
        ids = replays.insert_batches(
            tx, pipeline.name, replay_id, plan, generation_ids(known), requester
        )
        reason = f"what it was to replace was replaced; replanned as {ids}"[:1000]
        batches.abandon(tx, batch_id, by=requester.name, reason=reason)
        return ids

    return ctx.database.run(work)


def resume_replay(
    ctx: Context, replay_id: int, *, on_batch: Callable[[RanView], None] = lambda _: None
) -> ReplayOutcome:
    """Run the planned batches of a replay, one after another; it can be called again at any time.

    Args:
        ctx: What is needed from outside.
        replay_id: The ledger's key.
        on_batch: Called with each batch when it is committed.

    Raises:
        TallyError: As :func:`tally.replay.run.run_replay`; what was committed stays.
    """
    for ran in run_replay(ctx, replay_id):
        on_batch(RanView.of(ran))
    return replay_outcome(ctx, replay_id)


def replay_outcome(ctx: Context, replay_id: int, *, with_changes: bool = True) -> ReplayOutcome:
    """The outcome of a replay.

    Args:
        ctx: What is needed from outside.
        replay_id: The ledger's key.
        with_changes: Whether what it has changed is added up, which takes longest.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = replays.find_replay(tx, replay_id)
        return view_of(
            ReplayOutcome,
            found,
            **replays.totals_of(tx, found.pipeline, replay_id),
            changes=changes_of(tx, found.pipeline, replay_id) if with_changes else None,
        )
