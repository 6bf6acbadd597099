"""Abandoning a planned batch, or the planned batches of a replay."""

from dataclasses import dataclass

from tally.context import Context
from tally.ledger import batches, replays
from tally.ledger.positions import lock_pipeline
from tally.ledger.replays import ReplayRecord
from tally.model import BatchKind, OffsetRange
from tally.mysql.transactions import Transaction
from tally.views import view_of


@dataclass(frozen=True, kw_only=True, slots=True)
class AbandonedView:
    """An abandoned batch; after a dry run, one that would be abandoned."""

    batch_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline."""
    kind: BatchKind
    """An ingest batch moves offsets, a replay batch does not."""
    dry_run: bool
    """Whether nothing was changed."""
    ranges: tuple[OffsetRange, ...]
    """The ranges that it was planned to read."""

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return sum(r.offsets for r in self.ranges)


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelledView(ReplayRecord):
    """A replay after it was cancelled; after a dry run, as it would be."""

    dry_run: bool
    """Whether nothing was changed."""
    abandoned: tuple[int, ...]
    """The batches that are abandoned with it."""


def abandon(ctx: Context, batch_id: int, *, reason: str, dry_run: bool = False) -> AbandonedView:
    """Abandon a planned batch; no attempt can commit it any more.

    Args:
        ctx: What is needed from outside.
        batch_id: The ledger's key.
        reason: Why; kept in the ledger.
        dry_run: Whether nothing is changed.

    Raises:
        UnknownBatchError: The ledger has no batch with this id.
        FencedError: It was abandoned already.
        UsageError: It is committed.
    """
    batch = ctx.database.run(
        lambda tx: batches.abandon(tx, batch_id, by=ctx.requester.name, reason=reason),
        dry_run=dry_run,
    )
    return AbandonedView(
        batch_id=batch.batch_id,
        pipeline=batch.pipeline,
        kind=batch.kind,
        dry_run=dry_run,
        ranges=tuple(segment.range for segment in batch.segments),
    )


def cancel_replay(
    ctx: Context, replay_id: int, *, reason: str, dry_run: bool = False
) -> CancelledView:
    """Abandon the planned batches of a replay; its committed batches stay.

    Args:
        ctx: What is needed from outside.
        replay_id: The ledger's key.
        reason: Why; kept in the ledger.
        dry_run: Whether nothing is changed.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
        FencedError: It has no planned batch.
    """
    with ctx.database.transaction(read_only=True) as tx:
        pipeline = ctx.settings.pipeline(replays.find_replay(tx, replay_id).pipeline)

    def work(tx: Transaction) -> CancelledView:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        abandoned = replays.cancel(tx, replay_id, by=ctx.requester.name, reason=reason)
        now = replays.find_replay(tx, replay_id)
        return view_of(CancelledView, now, dry_run=dry_run, abandoned=tuple(abandoned))

    return ctx.database.run(work, dry_run=dry_run)
