"""Replays: writing a previewed request down, and counting it batch after batch.

:func:`request_replay` writes down exactly what a preview has shown. :func:`run_replay` counts batch
after batch and can be called again at any time, by anyone, until all are committed. Minute batches
and other replays may run beside it.
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
from tally.model import Batch, BatchState, KnownTopic, is_of_life
from tally.mysql.errors import CommitUnansweredError
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context
from tally.pipeline.replay_plan import (
    Preview,
    check_possible,
    incarnations,
    plan_against,
    snapshot_of,
)
from tally.pipeline.run import Ran, run_batch

# A batch whose segments were replaced by somebody else is planned anew, so often in a row.
OVERTAKEN_TRIES: Final = 5

# The run id of a replay that no run has asked for begins so.
CALL: Final = "call:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Requested:
    """A replay that was written down."""

    replay_id: int
    """The ledger's key."""
    batch_ids: tuple[int, ...]
    """Its batches, in order."""


def request_replay(ctx: Context, preview: Preview, *, reason: str) -> Requested:
    """Write down exactly what a preview has shown.

    A requester with a run id that has written this request down already is told what it wrote; one
    without gets an id for this call, so that a lost answer to COMMIT is found out here.

    Raises:
        ReplayRefusedError: It cannot be done, or it is not what was shown any more. Nothing is
            written.
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
            incarnations(known),
            requester,
            replays.Asked(request=preview.request, digest=preview.digest, reason=reason),
        )
        return Requested(replay_id=replay_id, batch_ids=tuple(batch_ids))

    return _written_once(ctx, work)


def _written_once(ctx: Context, work: Callable[[Transaction], Requested]) -> Requested:
    """Run what looks first, under the pipeline's lock, whether it was run before.

    A server that still works on a COMMIT holds that lock: whoever gets it sees what was written.
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
    """Count what is left of a replay, batch after batch.

    Yields:
        What became of each batch, as soon as it is committed.

    Raises:
        UnknownReplayError: The ledger has no such replay.
        FencedError: Somebody else works on it.
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
        yield from run_replay_batch(ctx, left[0])


def run_replay_batch(ctx: Context, batch_id: int) -> list[Ran]:
    """Count one batch of a replay; planned anew when another replay came first.

    Any batch may be given: one that was planned anew before is counted as what took its place, one
    that is no replay's as it is.

    Returns:
        What became of it: more than one when it had to be planned anew in other batches.

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
    """Plan the ranges of a replay's batch anew, against what is live now.

    Returns:
        The batches that take its place; the batch itself is abandoned.

    Raises:
        FencedError: It is committed or abandoned already.
        ReplayRefusedError: Its ranges cannot be counted again any more; nothing is changed.
    """
    with ctx.database.transaction(read_only=True) as tx:
        batch = batches.find_batch(tx, batch_id)
        pipeline = ctx.settings.pipeline(batch.pipeline)
        snapshot = snapshot_of(ctx.kafka, pipeline, positions.known_topics(tx, pipeline.name))
    replay_id = batch.replay_id
    if replay_id is None:
        raise FencedError(f"batch {batch_id} is no replay's", next_step=f"tally run {batch_id}")
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
        causes = [*_other_lives(now, known), *map(str, plan.refusals)]
        if causes:
            raise ReplayRefusedError(
                f"batch {batch_id} cannot be planned anew: {causes[0]}",
                next_step=f"tally abandon {batch_id}: what was counted stays",
            )
        ids = replays.insert_batches(
            tx, pipeline.name, replay_id, plan, incarnations(known), requester
        )
        reason = f"what it was to replace was replaced; planned anew as {ids}"[:1000]
        batches.abandon(tx, batch_id, by=requester.name, reason=reason)
        return ids

    return ctx.database.run(work)


def _other_lives(batch: Batch, known: Mapping[str, KnownTopic]) -> Iterator[str]:
    """The same offsets of a topic that was created again are other records."""
    for segment in batch.segments:
        now = known.get(segment.range.partition.topic)
        if now is None or not is_of_life(segment, now):
            yield f"{segment.range}: the ledger follows another life of the topic by now"
