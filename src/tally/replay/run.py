"""Recording a replay as it was shown, running it batch after batch, and what has become of it.

:func:`run_replay` can be called again at any time, by any process, until all batches are committed.
Ingest batches and other replays may run concurrently.
"""

import dataclasses
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.aggregates.aggregate import fingerprint
from tally.context import Context, Transaction
from tally.counting.outcomes import Ran
from tally.counting.replan import other_generations, plan_against, snapshot_of
from tally.counting.run import run_batches, together
from tally.errors import PreviewOutdatedError, ReplayRefusedError
from tally.formatting import REASON_MAX
from tally.ledger import batches, positions, replays
from tally.ledger.contributions import Changes, changes_of
from tally.ledger.line_sets import record_rows_view
from tally.ledger.replays import ReplayRecord, Requested
from tally.ledger.tables import tables_of
from tally.model import KnownTopic, OffsetRange, ReplayState
from tally.planning.replay import ReplayPlan, join_ranges
from tally.replay.preview import plan_digest, why_not
from tally.views import view_of

# Prefix of the run id of a replay that was not requested by an Airflow run.
CALL: Final = "call:"


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
    def changed(self) -> str:
        """What has changed in the result, or why this is not known."""
        if self.changes is not None:
            return str(self.changes)
        return (
            "what it has changed is no longer known: counts of it, or of what it replaced, were "
            f"pruned at {self.pruned_at:%Y-%m-%d %H:%M:%S} UTC"
        )

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to count."""
        return self.state is ReplayState.DONE


def find_requested(ctx: Context, pipeline: str, digest: str) -> Requested | None:
    """What the requester's run has recorded for a request already; None when it has not."""
    if ctx.requester.run_id is None:
        return None
    with ctx.database.transaction(read_only=True) as tx:
        return replays.find_replay_of_run(tx, pipeline, ctx.requester, digest)


def request_replay(
    ctx: Context,
    name: str,
    *,
    request: str,
    digest: str,
    asked: Sequence[OffsetRange],
    plan: str,
    reason: str,
) -> Requested:
    """Record exactly what a preview has shown.

    Idempotent for a requester with a run id: if that run has recorded this request already, its
    replay is returned. Without a run id the call gets an id of its own, so that it can look up its
    replay after a lost answer to COMMIT.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        request: The request as text.
        digest: A digest of the request.
        asked: The requested ranges, as Kafka and the ledger resolved them.
        plan: A digest of what would be read and replaced; exactly this is recorded.
        reason: Why; kept in the ledger.

    Raises:
        PreviewOutdatedError: Something else would be read or replaced by now. Nothing is written.
        ReplayRefusedError: It cannot be done, or an open replay is to count the same ranges and has
            not begun. Nothing is written.
        OutcomeUnknownError: The answer to COMMIT was lost, and the ledger could not be asked in
            time.
        RetryableError: Kafka or MySQL did not answer; nothing was written.
    """
    if (written := find_requested(ctx, name, digest)) is not None:
        return written
    pipeline = ctx.settings.pipeline(name)
    requester = ctx.requester
    if requester.run_id is None:
        requester = dataclasses.replace(requester, run_id=f"{CALL}{uuid.uuid4()}")
    with ctx.database.transaction(read_only=True) as tx:
        snapshot = snapshot_of(ctx.kafka, pipeline, positions.known_topics(tx, name))

    def work(tx: Transaction) -> Requested:
        known = positions.known_topics(tx, name)
        found = plan_against(tx, pipeline, known, snapshot, asked)
        if plan_digest(digest, found, fingerprint(pipeline)) != plan:
            raise PreviewOutdatedError(name)
        if (error := why_not(name, request, found)) is not None:
            raise error
        _check_not_open(tx, name, known, found)
        record_rows_view(tx, tables_of(tx, name), pipeline)
        return replays.insert_replay(
            tx,
            name,
            found,
            known,
            requester,
            request=request[:REASON_MAX],
            request_digest=digest,
            reason=reason,
        )

    def ask(tx: Transaction) -> Requested | None:
        positions.lock_pipeline(tx, name, pipeline.table)
        return replays.find_replay_of_run(tx, name, requester, digest)

    return ctx.database.run_answered(
        lambda tx: ask(tx) or work(tx),
        ask,
        what=f"the request for a replay of {name}",
        next_step=f"tally replays {name} shows whether it is recorded: then resume it",
        within_s=ctx.patience.outcome_s,
        pause_s=ctx.patience.doubt_pause_s,
    )


def _check_not_open(
    tx: Transaction, name: str, known: Mapping[str, KnownTopic], plan: ReplayPlan
) -> None:
    """Raise if an open replay, of which nothing is committed, has exactly a plan's ranges."""
    wanted = join_ranges([piece.range for piece in plan.pieces], touching=True)
    for replay in replays.open_replays(tx, name):
        planned = replays.planned_batches(tx, replay.replay_id)
        if replay.committed or not planned:
            continue
        found = batches.find_batches(tx, planned)
        ranges = join_ranges([r for batch in found for r in batch.ranges], touching=True)
        other = (why for batch in found for why in other_generations(batch, known))
        if ranges == wanted and next(other, None) is None:
            raise ReplayRefusedError(
                f"pipeline {name}: replay {replay.replay_id} is open and reprocesses exactly this "
                f"already, requested by {replay.requested_by} ({replay.request})",
                next_step=f"tally replay --resume {replay.replay_id}, or tally replay --cancel "
                f"{replay.replay_id} --reason 'ticket 17'",
            )


def open_replays(ctx: Context, pipeline: str) -> list[ReplayRecord]:
    """The pipeline's open replays, newest first."""
    with ctx.database.transaction(read_only=True) as tx:
        return replays.open_replays(tx, pipeline)


def list_replays(ctx: Context, pipeline: str, *, limit: int) -> ReplaysView:
    """The pipeline's replays, newest first.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        limit: The largest number of replays.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = replays.list_replays(tx, pipeline, limit=limit)
    return ReplaysView(pipeline=pipeline, replays=tuple(found))


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
        yield from run_batches(ctx, [batch.batch_id for batch in now])


def replay_outcome(ctx: Context, replay_id: int, *, with_changes: bool = True) -> ReplayOutcome:
    """The outcome of a replay.

    Args:
        ctx: What is needed from outside.
        replay_id: The ledger's key.
        with_changes: Whether what it has changed is added up, which takes longest.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
    """
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        found = replays.find_replay(tx, replay_id)
        return view_of(
            ReplayOutcome,
            found,
            **replays.totals_of(tx, found.pipeline, replay_id),
            changes=changes_of(tx, found) if with_changes else None,
        )
