"""Pruning: folding old contributions, so that the ledger does not grow without bound."""

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
    """Age of a commit from which on it is not kept apart."""
    dry_run: bool = False
    """Whether nothing is changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PruneView:
    """What was pruned, or would be."""

    pipeline: str
    """The pipeline."""
    dry_run: bool
    """Whether nothing was changed."""
    partitions: int
    """Partitions that had something to fold."""
    segments: int
    """Live segments that were folded."""
    rows: int
    """Rows that are gone from the ledger."""


def prune(
    ctx: Context, request: PruneRequest, *, progress: Progress = lambda _done, _total: None
) -> PruneView:
    """Fold what Kafka can no longer serve, and delete older history.

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
