"""Pruning: the ledger's retention. It keeps sums of what can no longer be replaced.

A segment whose records Kafka no longer holds cannot be replaced, so it is folded: its range joins
that of its neighbours, and its contribution is added to one sum per minute. The result does not
change, and the audit still proves it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from tally.context import Context, Transaction
from tally.deliveries.kept_lines import delivery_of
from tally.ledger import folding
from tally.ledger.folding import Folded
from tally.ledger.progress import forget_completions
from tally.ledger.schema import check_version
from tally.views import view_of

Progress = Callable[[int, int], None]


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
    ctx: Context,
    name: str,
    older_than: timedelta,
    *,
    progress: Progress = lambda _done, _total: None,
    dry_run: bool = False,
) -> PruneView:
    """Fold old segments that Kafka can no longer serve, and delete older history.

    Commits in small transactions, concurrently with batches and replays; after an interruption it
    can be called again. With ``dry_run`` each transaction is rolled back, so the answer covers the
    first thousand segments of each partition.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        older_than: Minimum age of the commits to prune.
        progress: Called with the number of partitions done and of all.
        dry_run: Whether nothing is changed.

    Raises:
        RetryableError: Kafka or MySQL did not answer; call it again.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(read_only=True) as tx:
        cutoff = tx.now() - older_than
        partitions = folding.foldable_partitions(tx, name)
    topics = sorted({where.partition.topic for where in partitions if where.is_current})
    snapshot = ctx.kafka.snapshot(topics, read_committed=pipeline.reads_committed)
    folded, touched = Folded(), 0
    for number, where in enumerate(partitions):
        progress(number, len(partitions))
        held = snapshot.partition(where.partition, of=where) if where.is_current else None
        if where.is_current and held is None:
            # A topic that is missing, or was replaced by another generation, may come back: it is
            # not pruned until an operator has adopted the new one.
            continue
        work = partial(
            folding.fold_partition,
            pipeline=name,
            where=where,
            requester=ctx.requester,
            before=held.earliest if held else None,
            cutoff=cutoff,
        )
        of_partition = _until_done(ctx, work, dry_run=dry_run)
        touched += int(of_partition.segments > 0)
        folded += of_partition
    progress(len(partitions), len(partitions))
    folded += _until_done(ctx, lambda tx: folding.forget_history(tx, name, cutoff), dry_run=dry_run)
    folded += _until_done(
        ctx, lambda tx: Folded(rows=forget_completions(tx, name, cutoff)), dry_run=dry_run
    )
    if not dry_run:
        delivery_of(ctx, pipeline).tidy()
    return view_of(PruneView, folded, pipeline=name, dry_run=dry_run, partitions=touched)


def _until_done(ctx: Context, work: Callable[[Transaction], Folded], *, dry_run: bool) -> Folded:
    def checked(tx: Transaction) -> Folded:
        check_version(tx)
        return work(tx)

    total = Folded()
    while True:
        done = ctx.database.run(checked, dry_run=dry_run)
        total += done
        if dry_run or done == Folded():
            return total
