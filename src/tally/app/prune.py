"""Pruning: the ledger's retention. Old contributions are folded into one sum per minute."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from tally.pipeline import prune as step
from tally.pipeline.context import Context

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneRequest:
    """What to prune."""

    pipeline: str
    """The pipeline."""
    older_than: timedelta
    """Only commits older than this are pruned."""
    dry_run: bool = False
    """Whether nothing is changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneView:
    """What was pruned; after a dry run, what would be pruned."""

    pipeline: str
    """The pipeline."""
    dry_run: bool
    """Whether nothing was changed."""
    partitions: int
    """Partitions with at least one folded segment."""
    segments: int
    """Live segments that were folded."""
    rows: int
    """Rows that were deleted from the ledger."""


def prune(
    ctx: Context, request: PruneRequest, *, progress: Progress = lambda _done, _total: None
) -> PruneView:
    """Fold contributions that Kafka can no longer serve, and delete superseded history.

    Raises:
        TallyError: As :func:`tally.pipeline.prune.prune`.
    """
    pruned = step.prune(
        ctx, request.pipeline, request.older_than, progress, dry_run=request.dry_run
    )
    return PruneView(
        pipeline=request.pipeline,
        dry_run=request.dry_run,
        partitions=pruned.partitions,
        segments=pruned.segments,
        rows=pruned.rows,
    )
