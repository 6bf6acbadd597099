"""Replays: recording a previewed request, and running it batch after batch.

:func:`request_replay` records exactly what a preview has shown. :func:`run_replay` can be called
again at any time, by any process, until all batches are committed. Ingest batches and other replays
may run concurrently.
"""

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.context import Context
from tally.counting.batch import Ran
from tally.counting.run import run_batches, together
from tally.deliveries.kept_lines import delivery_of
from tally.errors import (
    FencedError,
    PreviewOutdatedError,
    ReplayRefusedError,
)
from tally.ledger import batches, positions, replay_runs, replays
from tally.ledger.tables import tables_of
from tally.model import Batch, BatchState, KnownTopic
from tally.mysql.transactions import Transaction
from tally.planning.replay import join_ranges
from tally.planning.serving import is_of_generation
from tally.replay.preview import (
    Preview,
    check_possible,
    incarnation_ids,
    plan_against,
    snapshot_of,
)

# Prefix of the run id of a replay that was not requested by an Airflow run.
CALL: Final = "call:"


@dataclass(frozen=True, slots=True)
class Requested:
    """A replay that was recorded."""

    replay_id: int
    """The ledger's key."""
    batch_ids: tuple[int, ...]
    """Its batches, in order."""


def request_replay(ctx: Context, preview: Preview, *, reason: str) -> Requested:
    """Record exactly what a preview has shown.

    Idempotent for a requester with a run id: if that run has recorded this request already, its
    replay is returned. Without a run id the call gets an id of its own, so that it can look up its
    replay after a lost answer to COMMIT.

    Raises:
        ReplayRefusedError: It cannot be done, the preview is outdated, or an open replay is to
            count the same ranges and has not begun. Nothing is written.
        OutcomeUnknownError: The answer to COMMIT was lost, and the ledger could not be asked in
            time.
        RetryableError: Kafka or MySQL did not answer; nothing was written.
    """
    pipeline = ctx.settings.pipeline(preview.pipeline)
    requester = ctx.requester
    if requester.run_id is None:
        requester = dataclasses.replace(requester, run_id=f"{CALL}{uuid.uuid4()}")
    check_possible(preview)
    with ctx.database.transaction(read_only=True) as tx:
        snapshot = snapshot_of(ctx.kafka, pipeline, positions.known_topics(tx, pipeline.name))

    def work(tx: Transaction) -> Requested:
        known = positions.known_topics(tx, pipeline.name)
        if plan_against(tx, pipeline, known, snapshot, preview.plan.asked) != preview.plan:
            raise PreviewOutdatedError(pipeline.name)
        _check_not_open(tx, pipeline.name, known, preview)
        delivery_of(ctx, pipeline).record(tx, tables_of(tx, pipeline.name))
        replay_id, batch_ids = replays.insert_replay(
            tx,
            pipeline.name,
            preview.plan,
            incarnation_ids(known),
            requester,
            replays.Asked(request=preview.request, digest=preview.digest, reason=reason),
        )
        return Requested(replay_id, tuple(batch_ids))

    def ask(tx: Transaction) -> Requested | None:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        written = replay_runs.find_replay_of_run(tx, pipeline.name, requester, preview.digest)
        return None if written is None else Requested(written[0], tuple(written[1]))

    return ctx.database.run_answered(
        lambda tx: ask(tx) or work(tx),
        ask,
        what=f"the request for a replay of {pipeline.name} (tally replays lists it if it is there)",
        within_s=ctx.patience.outcome_s,
        pause_s=ctx.patience.doubt_pause_s,
    )


def _check_not_open(
    tx: Transaction, name: str, known: Mapping[str, KnownTopic], preview: Preview
) -> None:
    """Raise if an open replay, of which nothing is committed, has exactly the preview's ranges."""
    wanted = join_ranges([piece.range for piece in preview.plan.pieces], touching=True)
    for replay in replays.open_replays(tx, name):
        planned = replays.planned_batches(tx, replay.replay_id)
        if replay.committed or not planned:
            continue
        found = batches.find_batches(tx, planned)
        ranges = join_ranges([s.range for batch in found for s in batch.segments], touching=True)
        other = (why for batch in found for why in _other_generations(batch, known))
        if ranges == wanted and next(other, None) is None:
            raise ReplayRefusedError(
                f"pipeline {name}: replay {replay.replay_id} is open and reprocesses exactly this "
                f"already, requested by {replay.requested_by} ({replay.request})",
                next_step=f"tally replay --resume {replay.replay_id}, or tally replay --cancel "
                f"{replay.replay_id} --reason 'ticket 17'",
            )


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

    Args and errors: as :func:`tally.counting.run.run_batches`.
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
        causes = [*_other_generations(now, known), *map(str, plan.refusals)]
        if causes:
            raise ReplayRefusedError(
                f"batch {batch_id} cannot be replanned: {causes[0]}",
                next_step="give it up, what was counted stays: "
                f"tally abandon {batch_id} --reason '…'",
            )
        ids = replays.insert_batches(
            tx, pipeline.name, replay_id, plan, incarnation_ids(known), requester
        )
        reason = f"what it was to replace was replaced; replanned as {ids}"[:1000]
        batches.abandon(tx, batch_id, by=requester.name, reason=reason)
        return ids

    return ctx.database.run(work)


def _other_generations(batch: Batch, known: Mapping[str, KnownTopic]) -> Iterator[str]:
    """Ranges of a topic that was created again since; the same offsets are now other records."""
    for segment in batch.segments:
        now = known.get(segment.range.partition.topic)
        if now is None or not is_of_generation(segment, now):
            yield f"{segment.range}: the ledger now follows another generation of the topic"
