"""Replays: recording a previewed request, and running it batch after batch.

:func:`request_replay` records exactly what a preview has shown. :func:`run_replay` can be called
again at any time, by any process, until all batches are committed. Ingest batches and other replays
may run concurrently.
"""

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tally.errors import (
    FencedError,
    MySQLUnavailableError,
    OvertakenError,
    PreviewOutdatedError,
    ReplayRefusedError,
    TransactionRetryError,
)
from tally.ledger import batches, positions, replay_runs, replays
from tally.model import Batch, BatchState, KnownTopic, is_of_generation
from tally.mysql.errors import CommitUnansweredError
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context
from tally.pipeline.replay_plan import (
    Preview,
    check_possible,
    incarnation_ids,
    plan_against,
    snapshot_of,
)
from tally.pipeline.run import Ran, run_batch

# How many conflicts with other replays in a row lead to a replanned batch; the next is an error.
OVERTAKEN_TRIES: Final = 5

# Prefix of the run id of a replay that was not requested by an Airflow run.
CALL: Final = "call:"


@dataclass(frozen=True, kw_only=True, slots=True)
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
        ReplayRefusedError: It cannot be done, or the preview is outdated. Nothing is written.
        CommitUnansweredError: The answer to COMMIT was lost, and the ledger could not be asked in
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
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        written = replay_runs.find_replay_of_run(tx, pipeline.name, requester, preview.digest)
        if written is not None:
            return Requested(replay_id=written[0], batch_ids=tuple(written[1]))
        known = positions.known_topics(tx, pipeline.name)
        if plan_against(tx, pipeline, known, snapshot, preview.plan.asked) != preview.plan:
            raise PreviewOutdatedError(pipeline.name)
        replay_id, batch_ids = replays.insert_replay(
            tx,
            pipeline.name,
            preview.plan,
            incarnation_ids(known),
            requester,
            replays.Asked(request=preview.request, digest=preview.digest, reason=reason),
        )
        return Requested(replay_id=replay_id, batch_ids=tuple(batch_ids))

    return _written_once(ctx, work)


def _written_once(ctx: Context, work: Callable[[Transaction], Requested]) -> Requested:
    """Run ``work`` until an answer arrives; it must first look up, under the lock, its own record.

    A server that still works on a COMMIT holds the pipeline's lock, so the next call of ``work``
    sees what was written.
    """
    unanswered, deadline = None, 0.0
    while True:
        try:
            return ctx.database.run(work)
        except (MySQLUnavailableError, TransactionRetryError, CommitUnansweredError) as error:
            if isinstance(error, CommitUnansweredError) and unanswered is None:
                unanswered = error
                deadline = ctx.clock.monotonic() + ctx.patience.outcome_s
            elif unanswered is None:
                raise
            elif ctx.clock.monotonic() > deadline:
                raise unanswered from error
            else:
                ctx.clock.sleep(ctx.patience.doubt_pause_s)


def run_replay(ctx: Context, replay_id: int) -> Iterator[Ran]:
    """Run the planned batches of a replay, one after another.

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
        if not left:
            return
        yield from run_or_replan(ctx, left[0])


def run_or_replan(ctx: Context, batch_id: int) -> list[Ran]:
    """Run a batch of either kind; a replay's batch is replanned when another replay came first.

    For a batch that was replanned before, its replacements are run. An ingest batch is never
    replanned.

    Returns:
        The outcome of each batch that was run: several when it was replanned as several.

    Raises:
        As :func:`run_replay`.
    """
    with ctx.database.transaction(read_only=True) as tx:
        todo = replay_runs.standing_for(tx, batch_id)
    done, overtaken = [], 0
    while todo:
        try:
            done.append(run_batch(ctx, todo[0]))
            todo.pop(0)
        except OvertakenError:
            overtaken += 1
            if overtaken == OVERTAKEN_TRIES:
                raise
            todo[:1] = replan_batch(ctx, todo[0])
    return done


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
                next_step=f"tally abandon {batch_id} --reason '…': what was counted stays",
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
