"""Replays: recording a previewed one in the ledger, running it, and its outcome."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from tally.app.preview import PreviewView, plan_digest
from tally.app.run import RanView
from tally.app.views import RangeView, values_of
from tally.errors import PreviewOutdatedError
from tally.ledger.replacements import Changes, changes_of
from tally.ledger.replay_runs import find_replay_of_run, totals_of
from tally.ledger.replays import ReplayRecord, find_replay, list_replays
from tally.ledger.segments import segments_of
from tally.model import OffsetRange, ReplayState
from tally.mysql.transactions import Transaction
from tally.pipeline import replay as step
from tally.pipeline.context import Context
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import RangesAsked


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaysView:
    """Replays of a pipeline."""

    pipeline: str
    """The pipeline."""
    replays: tuple[ReplayRecord, ...]
    """Newest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRequest:
    """A replay as a preview has shown it."""

    pipeline: str
    """The pipeline."""
    request: str
    """The request as text."""
    digest: str
    """A digest of the request; another request has another one."""
    asked: tuple[OffsetRange, ...]
    """The requested ranges, as Kafka and the ledger resolved them."""
    plan: str
    """A digest of what would be read and replaced; exactly this is recorded."""

    @classmethod
    def of(cls, shown: PreviewView) -> Self:
        """The request for exactly what a preview has shown."""
        return cls(
            pipeline=shown.pipeline,
            request=shown.request,
            digest=shown.digest,
            asked=tuple(r.range for r in shown.asked),
            plan=shown.plan,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedBatch:
    """A batch of a replay, as it was recorded."""

    batch_id: int
    """The ledger's key."""
    ranges: tuple[RangeView, ...]
    """What it reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestedView:
    """A replay that is recorded in the ledger."""

    replay_id: int
    """The ledger's key."""
    batches: tuple[RequestedBatch, ...]
    """Its batches, in the order in which they are run."""


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


def replays(
    ctx: Context, pipeline: str, *, state: ReplayState | None = None, limit: int = 20
) -> ReplaysView:
    """The pipeline's replays, newest first; of the latest ``limit`` those in the state, if any.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = list_replays(tx, pipeline, limit=limit)
    wanted = [r for r in found if state in {None, r.state}]
    return ReplaysView(pipeline=pipeline, replays=tuple(wanted))


def replay(ctx: Context, replay_id: int) -> ReplayRecord:
    """One replay, as the ledger has it now.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
    """
    with ctx.database.transaction(read_only=True) as tx:
        return find_replay(tx, replay_id)


def request_replay(ctx: Context, request: ReplayRequest, *, reason: str) -> RequestedView:
    """Record exactly what a preview has shown.

    Args:
        ctx: What is needed from outside. A requester whose run has recorded this request already
            gets the same replay again.
        request: What the preview has shown.
        reason: Why; kept in the ledger.

    Raises:
        PreviewOutdatedError: Something else would be read or replaced by now. Nothing is written.
        TallyError: As :func:`tally.pipeline.replay.request_replay`.
    """
    if (written := find_requested(ctx, request.pipeline, request.digest)) is not None:
        return written
    found = preview_replay(ctx, request.pipeline, RangesAsked(ranges=request.asked))
    found = dataclasses.replace(found, request=request.request, digest=request.digest)
    if plan_digest(found) != request.plan:
        raise PreviewOutdatedError(request.pipeline)
    requested = step.request_replay(ctx, found, reason=reason)
    with ctx.database.transaction(read_only=True) as tx:
        return _requested(tx, requested.replay_id, requested.batch_ids)


def find_requested(ctx: Context, pipeline: str, digest: str) -> RequestedView | None:
    """What the requester's run has recorded for a request already; None when it has not."""
    if ctx.requester.run_id is None:
        return None
    with ctx.database.transaction(read_only=True) as tx:
        written = find_replay_of_run(tx, pipeline, ctx.requester, digest)
        return None if written is None else _requested(tx, *written)


def _requested(tx: Transaction, replay_id: int, batch_ids: Sequence[int]) -> RequestedView:
    return RequestedView(
        replay_id=replay_id,
        batches=tuple(
            RequestedBatch(
                batch_id=number,
                ranges=tuple(RangeView.of(segment.range) for segment in segments_of(tx, number)),
            )
            for number in batch_ids
        ),
    )


def resume_replay(
    ctx: Context, replay_id: int, *, on_batch: Callable[[RanView], None] = lambda _: None
) -> ReplayOutcome:
    """Run the planned batches of a replay, one after another; it can be called again at any time.

    Args:
        ctx: What is needed from outside.
        replay_id: The ledger's key.
        on_batch: Called with each batch when it is committed.

    Raises:
        TallyError: As :func:`tally.pipeline.replay.run_replay`; what was committed stays.
    """
    for ran in step.run_replay(ctx, replay_id):
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
        return ReplayOutcome(
            **values_of(find_replay(tx, replay_id)),
            **values_of(totals_of(tx, replay_id)),
            changes=changes_of(tx, replay_id) if with_changes else None,
        )
