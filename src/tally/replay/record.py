"""Recording a replay: exactly what a preview has shown, once for each request of a run."""

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.context import Context
from tally.errors import PreviewOutdatedError, ReplayRefusedError
from tally.ledger import batches, positions, replays
from tally.ledger.batches import Requester
from tally.ledger.line_sets import record_rows_view
from tally.ledger.tables import tables_of
from tally.model import Batch, KnownTopic, OffsetRange
from tally.mysql.transactions import Transaction
from tally.planning.replay import join_ranges
from tally.planning.replay_request import RangesAsked
from tally.replay.preview import (
    Preview,
    check_possible,
    generation_ids,
    other_generations,
    plan_against,
    preview_replay,
    snapshot_of,
)
from tally.replay.preview_view import plan_digest

# Prefix of the run id of a replay that was not requested by an Airflow run.
CALL: Final = "call:"


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


def request_shown(
    ctx: Context,
    pipeline: str,
    *,
    request: str,
    digest: str,
    asked: Sequence[OffsetRange],
    plan: str,
    reason: str,
) -> Requested:
    """Record what a :class:`tally.replay.preview_view.PreviewView` has shown.

    Args:
        ctx: What is needed from outside. A requester whose run has recorded this request already
            gets the same replay again.
        pipeline: The pipeline.
        request: The request as text.
        digest: A digest of the request.
        asked: The requested ranges, as Kafka and the ledger resolved them.
        plan: A digest of what would be read and replaced; exactly this is recorded.
        reason: Why; kept in the ledger.

    Raises:
        PreviewOutdatedError: Something else would be read or replaced by now. Nothing is written.
        TallyError: As :func:`request_replay`.
    """
    if (written := find_requested(ctx, pipeline, digest)) is not None:
        return written
    found = preview_replay(ctx, pipeline, RangesAsked(ranges=tuple(asked)))
    found = dataclasses.replace(found, request=request, digest=digest)
    if plan_digest(found) != plan:
        raise PreviewOutdatedError(pipeline)
    return request_replay(ctx, found, reason=reason)


def find_requested(ctx: Context, pipeline: str, digest: str) -> Requested | None:
    """What the requester's run has recorded for a request already; None when it has not."""
    if ctx.requester.run_id is None:
        return None
    with ctx.database.transaction(read_only=True) as tx:
        return _of_run(tx, pipeline, ctx.requester, digest)


def _of_run(tx: Transaction, pipeline: str, requester: Requester, digest: str) -> Requested | None:
    written = replays.find_replay_of_run(tx, pipeline, requester, digest)
    if written is None:
        return None
    replay_id, batch_ids = written
    # Without any once all were pruned.
    found = batches.find_batches(tx, batch_ids) if batch_ids else []
    return Requested(replay_id, tuple(found))


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
        record_rows_view(tx, tables_of(tx, pipeline.name), pipeline)
        replay_id, batch_ids = replays.insert_replay(
            tx,
            pipeline.name,
            preview.plan,
            generation_ids(known),
            requester,
            request=preview.request[:1000],
            request_digest=preview.digest,
            reason=reason,
        )
        return Requested(replay_id, tuple(batches.find_batches(tx, batch_ids)))

    def ask(tx: Transaction) -> Requested | None:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        return _of_run(tx, pipeline.name, requester, preview.digest)

    return ctx.database.run_answered(
        lambda tx: ask(tx) or work(tx),
        ask,
        what=f"the request for a replay of {pipeline.name}",
        next_step=f"tally replays {pipeline.name} shows whether it is recorded: then resume it",
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
        other = (why for batch in found for why in other_generations(batch, known))
        if ranges == wanted and next(other, None) is None:
            raise ReplayRefusedError(
                f"pipeline {name}: replay {replay.replay_id} is open and reprocesses exactly this "
                f"already, requested by {replay.requested_by} ({replay.request})",
                next_step=f"tally replay --resume {replay.replay_id}, or tally replay --cancel "
                f"{replay.replay_id} --reason 'ticket 17'",
            )
