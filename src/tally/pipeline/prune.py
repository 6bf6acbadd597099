"""Pruning: the ledger forgets what can be told from nothing any more, and keeps its sums.

A segment whose records Kafka no longer holds cannot be replaced, so it need not be told apart from
its neighbours: its range joins theirs, and its contribution is added to one sum per minute. The
result does not change, and the audit proves it as before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from tally.ledger.folding import (
    Foldable,
    Folded,
    fold_partition,
    foldable_partitions,
    forget_history,
)
from tally.model import KafkaSnapshot
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """What was pruned, or would be."""

    partitions: int
    """Partitions that had something to fold."""
    segments: int
    """Live segments that were folded."""
    rows: int
    """Rows that are gone from the ledger."""


def prune(
    ctx: Context, name: str, older_than: timedelta, progress: Progress, *, dry_run: bool = False
) -> Pruned:
    """Fold what was committed so long ago and Kafka can no longer serve; forget older history.

    Commits in small transactions, beside the minute batches and replays; interrupted, it is simply
    called again. With ``dry_run`` each of them is rolled back, so the answer is that of the first
    thousand segments of each partition.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        older_than: Age of a commit from which on it is not kept apart.
        progress: Told how many partitions of how many are done.
        dry_run: Whether nothing is changed.

    Raises:
        RetryableError: Kafka or MySQL did not answer; call it again.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(read_only=True) as tx:
        cutoff = tx.now() - older_than
        partitions = foldable_partitions(tx, name)
    topics = sorted({where.partition.topic for where in partitions if where.is_current})
    snapshot = ctx.kafka.snapshot(topics, read_committed=pipeline.reads_committed)
    folded, touched = Folded(), 0
    for number, where in enumerate(partitions):
        progress(number, len(partitions))
        before, is_known = _limit(where, snapshot)
        if not is_known:
            continue
        work = partial(
            fold_partition,
            pipeline=name,
            where=where,
            requester=ctx.requester,
            before=before,
            cutoff=cutoff,
        )
        of_partition = _until_done(ctx, work, dry_run=dry_run)
        touched += int(of_partition.segments > 0)
        folded += of_partition
    progress(len(partitions), len(partitions))
    folded += _until_done(ctx, lambda tx: forget_history(tx, name, cutoff), dry_run=dry_run)
    return Pruned(partitions=touched, segments=folded.segments, rows=folded.rows)


def _until_done(ctx: Context, work: Callable[[Transaction], Folded], *, dry_run: bool) -> Folded:
    total = Folded()
    while True:
        done = ctx.database.run(work, dry_run=dry_run)
        total += done
        if dry_run or done == Folded():
            return total


def _limit(where: Foldable, kafka: KafkaSnapshot) -> tuple[int | None, bool]:
    """Up to where Kafka has lost the partition, and whether that is known.

    A topic that is away, or is another one, may come back: it is left alone until an operator has
    adopted the one that is there.
    """
    if not where.is_current:
        return None, True
    topic = kafka.topics.get(where.partition.topic)
    if topic is None or (topic.topic_id, kafka.cluster_id) != (where.topic_id, where.cluster_id):
        return 0, False
    held = topic.partitions.get(where.partition.partition)
    return (0, False) if held is None else (held.earliest, True)
