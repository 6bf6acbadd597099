"""What an operator decides: losses, re-created topics, planned batches that are given up.

Each is one transaction under the pipeline's lock; who decided and why is kept in the ledger.
"""

from collections.abc import Sequence

from tally.errors import MissingTopicError, UsageError
from tally.ledger import batches, replays
from tally.ledger.decisions import (
    Adoption,
    LossRecord,
    accept_losses,
    adopt_topic,
    find_losses,
    keep_blocked,
)
from tally.ledger.positions import lock_pipeline
from tally.ledger.replays import ReplayRecord
from tally.model import Batch
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context
from tally.planning.ingest import first_offsets


def list_losses(ctx: Context, name: str, *, only_open: bool = False) -> list[LossRecord]:
    """The pipeline's lost ranges, oldest first."""
    with ctx.database.transaction(read_only=True) as tx:
        return find_losses(tx, name, only_open=only_open)


def settle_losses(
    ctx: Context,
    name: str,
    seen: Sequence[LossRecord],
    *,
    accept: bool,
    reason: str,
    dry_run: bool = False,
) -> None:
    """Accept losses exactly as they were seen, or note that they stay open.

    Args:
        ctx: What is needed from outside; its requester decides.
        name: The pipeline.
        seen: The losses that were shown.
        accept: Whether counting goes on behind them; else they stay open.
        reason: Why.
        dry_run: Whether nothing is changed.

    Raises:
        UsageError: One of them has grown, or was decided by somebody else. Nothing is changed.
    """
    pipeline = ctx.settings.pipeline(name)
    decide = accept_losses if accept else keep_blocked

    def work(tx: Transaction) -> None:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        decide(tx, pipeline.name, seen, by=ctx.requester.name, reason=reason)

    ctx.database.run(work, dry_run=dry_run)


def find_adoption(ctx: Context, name: str, topic: str, start: str) -> Adoption:
    """What adopting a topic as Kafka shows it now would mean.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        topic: One of its topics.
        start: ``earliest`` or ``latest``: where counting of a new topic begins.

    Raises:
        UsageError: The pipeline does not read the topic.
        MissingTopicError: Kafka does not know it.
    """
    pipeline = ctx.settings.pipeline(name)
    if topic not in pipeline.topics:
        raise UsageError(
            f"pipeline {name} does not read the topic {topic}",
            next_step=f"its topics are: {', '.join(pipeline.topics)}",
        )
    kafka = ctx.kafka.snapshot([topic], read_committed=pipeline.reads_committed)
    if topic not in kafka.topics:
        raise MissingTopicError(
            f"Kafka has no topic {topic}; there is nothing to adopt",
            next_step=f"create it, or take it out of the topics of {name}",
        )
    starts = first_offsets(kafka, [topic], start, {})
    return Adoption(
        topic=topic,
        cluster_id=kafka.cluster_id,
        topic_id=kafka.topics[topic].topic_id,
        starts={partition.partition: offset for partition, offset in starts.items()},
    )


def adopt(
    ctx: Context, name: str, adoption: Adoption, *, reason: str, dry_run: bool = False
) -> dict[int, int]:
    """Follow a topic's new generation from now on; what was counted stays counted.

    Returns:
        Where counting goes on, by partition.

    Raises:
        UsageError: The ledger does not know the topic, or follows this generation already.
    """
    pipeline = ctx.settings.pipeline(name)

    def work(tx: Transaction) -> dict[int, int]:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        return adopt_topic(tx, pipeline.name, adoption, by=ctx.requester.name, reason=reason)

    return ctx.database.run(work, dry_run=dry_run)


def abandon(ctx: Context, batch_id: int, *, reason: str, dry_run: bool = False) -> Batch:
    """Give a planned batch up; nobody can commit it any more.

    Returns:
        The batch as it was.

    Raises:
        UnknownBatchError: The ledger has none of that id.
        FencedError: It is committed or abandoned already.
    """
    return ctx.database.run(
        lambda tx: batches.abandon(tx, batch_id, by=ctx.requester.name, reason=reason),
        dry_run=dry_run,
    )


def cancel_replay(
    ctx: Context, replay_id: int, *, reason: str, dry_run: bool = False
) -> tuple[list[int], ReplayRecord]:
    """Give up what is left of a replay; what it has committed stays.

    Returns:
        The batches that were given up, and the replay as it stands then.

    Raises:
        UnknownReplayError: The ledger has none of that id.
        FencedError: None of its batches is planned any more.
    """
    with ctx.database.transaction(read_only=True) as tx:
        pipeline = ctx.settings.pipeline(replays.find_replay(tx, replay_id).pipeline)

    def work(tx: Transaction) -> tuple[list[int], ReplayRecord]:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        given_up = replays.cancel(tx, replay_id, by=ctx.requester.name, reason=reason)
        return given_up, replays.find_replay(tx, replay_id)

    return ctx.database.run(work, dry_run=dry_run)
