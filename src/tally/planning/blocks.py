"""Blocks: topics and partitions that are not read, why, and what to do about it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from tally.config.names import mirror_group
from tally.config.pipeline import Pipeline
from tally.errors import BlockedError, MissingTopicError, OperatorError, StartInFutureError
from tally.model import KafkaSnapshot, KnownTopic, Loss, LossCause, TopicPartition, TopicSnapshot


class BlockReason(StrEnum):
    """Why a topic or a partition is not read; the runbook has an entry for each."""

    TOPIC_MISSING = "topic-missing"
    START_IN_FUTURE = "start-in-future"
    TOPIC_CHANGED = "topic-changed"
    TOPIC_FORGOTTEN = "topic-forgotten"
    CLUSTER_CHANGED = "cluster-changed"
    PARTITION_MISSING = "partition-missing"
    RECORDS_LOST = "records-lost"
    RECORDS_MISSING = "records-missing"
    TOPIC_TRUNCATED = "topic-truncated"


# Stale metadata can cause these answers, so Kafka is asked again before they are accepted.
DOUBTFUL_REASONS = frozenset(
    {
        BlockReason.TOPIC_MISSING,
        BlockReason.TOPIC_CHANGED,
        BlockReason.CLUSTER_CHANGED,
        BlockReason.PARTITION_MISSING,
        BlockReason.TOPIC_TRUNCATED,
    }
)

OTHER_RECORDS = frozenset({BlockReason.TOPIC_CHANGED, BlockReason.CLUSTER_CHANGED})
"""Kafka's offsets are then those of other records than the ledger's."""

_ERRORS: dict[str, type[OperatorError]] = {
    kind.code: kind for kind in (MissingTopicError, StartInFutureError)
}
"""Of the reasons that are errors by themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A topic, or one partition of it, that is not read until an operator decides."""

    topic: str
    """The topic."""
    partition: int | None = None
    """The partition; None when all of the topic is blocked."""
    reason: BlockReason
    """Why."""
    detail: str
    """The ledger's and Kafka's answer, in one sentence."""
    next_step: str
    """The command that resolves it."""

    @property
    def place(self) -> str:
        """``alog``, or ``alog/0``."""
        return self.topic if self.partition is None else f"{self.topic}/{self.partition}"

    def __str__(self) -> str:
        """One line for logs and errors."""
        return f"{self.place}: {self.reason}: {self.detail} ({self.next_step})"


def blocked_error(pipeline: str, blocks: Sequence[Block]) -> OperatorError:
    """The error with which a run ends while topics or partitions are blocked."""
    reasons = {block.reason for block in blocks}
    kind = _ERRORS.get(reasons.pop(), BlockedError) if len(reasons) == 1 else BlockedError
    next_step = blocks[0].next_step
    is_next = {block.next_step for block in blocks} == {next_step}
    told = [
        f"{block.place}: {'' if block.reason == kind.code else f'{block.reason}: '}{block.detail}"
        f"{'' if is_next else f' ({block.next_step})'}"
        for block in blocks
    ]
    return kind(f"pipeline {pipeline}: not read: {'; '.join(told)}", next_step=next_step)


def check_unblocked(pipeline: str | None, blocks: Sequence[Block]) -> None:
    """Raise while something of a pipeline is blocked; the rest was planned all the same.

    Raises:
        OperatorError: With every block and the next step.
    """
    if pipeline is not None and blocks:
        raise blocked_error(pipeline, blocks)


def topic_block(
    pipeline: Pipeline,
    topic: str,
    known: KnownTopic | None,
    kafka: KafkaSnapshot,
    *,
    has_begun: bool,
    counted_before: bool,
) -> Block | None:
    """Why nothing of a topic is read; None when it is.

    Args:
        pipeline: What the configuration says.
        topic: One of its topics.
        known: The ledger's current generation of it; None for a new topic.
        kafka: What Kafka says of it.
        has_begun: Whether the pipeline's start is no future time.
        counted_before: Whether this ledger has counted the new topic before it was restored.
    """
    found, start = kafka.topics.get(topic), pipeline.start
    adopt = f"tally topics adopt {pipeline.name} {topic} --reason '…'"
    if found is None:
        reason = BlockReason.TOPIC_MISSING
        detail = "Kafka has no such topic" + (" any more" if known else "")
        next_step = create_topic(
            topic, then=", which then needs tally topics adopt" if known else ""
        )
    elif known is not None and kafka.cluster_id != known.cluster_id:
        reason = BlockReason.CLUSTER_CHANGED
        detail = f"counted on cluster {known.cluster_id}, Kafka says {kafka.cluster_id}"
        next_step = f"correct kafka.bootstrap_servers, or: {adopt}"
    elif known is not None and found.topic_id != known.topic_id:
        reason, next_step = BlockReason.TOPIC_CHANGED, adopt
        detail = (
            f"counted with topic id {known.topic_id}, Kafka says {found.topic_id}: "
            "the topic was deleted and created again"
        )
    elif known is None and counted_before and start == "latest":
        reason = BlockReason.TOPIC_FORGOTTEN
        detail = (
            "the ledger does not know it, and has mirrored offsets of it to the group "
            f"{mirror_group(pipeline.name)}: it was restored to a state from before its first plan"
        )
        next_step = (
            f'set pipelines.{pipeline.name}.start = "earliest", or to the time from which it is '
            "to be counted, until it is planned"
        )
    elif known is None and not has_begun and isinstance(start, datetime):
        reason = BlockReason.START_IN_FUTURE
        detail = (
            f"new to the pipeline, and pipelines.{pipeline.name}.start = {start.isoformat()} has "
            "not come yet: where it begins is not known before then"
        )
        next_step = 'wait until then, or set start to a time that has passed or to "latest"'
    else:
        return None
    return Block(topic=topic, reason=reason, detail=detail, next_step=next_step)


def create_topic(topic: str, then: str = "") -> str:
    """What to do about a topic that Kafka does not know."""
    return (
        f"take it out of the pipeline's topics, or create it{then}: "
        f"kafka-topics --bootstrap-server BROKER:9092 --create --topic {topic}"
    )


def missing_partition(partition: TopicPartition, known: int, snapshot: TopicSnapshot) -> Block:
    """The block of a partition that Kafka leaves out and the ledger knows."""
    return Block(
        topic=partition.topic,
        partition=partition.partition,
        reason=BlockReason.PARTITION_MISSING,
        detail=f"the ledger knows {known} partitions, Kafka answers {len(snapshot.partitions)}",
        next_step="check the brokers; a topic never loses a partition",
    )


def lost(pipeline: str, loss: Loss) -> Block:
    """The block of a partition with an open loss."""
    r = loss.range
    accept = f"tally losses accept {pipeline} --reason '…'"
    reason, detail, next_step = {
        LossCause.EXPIRED: (
            BlockReason.RECORDS_LOST,
            f"[{r.from_offset}, {r.until_offset}) was never counted and Kafka no longer holds it",
            f"restore it, or: {accept}",
        ),
        LossCause.TRUNCATED: (
            BlockReason.TOPIC_TRUNCATED,
            f"counted up to {r.until_offset}, and Kafka fell back to {r.from_offset}",
            f"find out what happened (docs/runbook.md, topic-truncated), then: {accept}",
        ),
        LossCause.MISSING: (
            BlockReason.RECORDS_MISSING,
            f"[{r.from_offset}, {r.until_offset}) was read, and some of its offsets hold no record",
            f'set offsets = "sparse" for transactions or compaction, or: {accept}',
        ),
    }[loss.cause]
    return Block(
        topic=r.partition.topic,
        partition=r.partition.partition,
        reason=reason,
        detail=detail,
        next_step=next_step,
    )


def before_a_plan(
    pipeline: str, blocks: Sequence[Block], known: Mapping[str, KnownTopic]
) -> tuple[Block, ...]:
    """The blocks as they are until a plan has recorded them: of what is lost it is the next step.

    Args:
        pipeline: The pipeline.
        blocks: Its blocks, as a plan has them.
        known: The ledger's current generations of its topics.
    """
    step = f"tally plan {pipeline}, which records the loss; then restore the records or accept it"
    return tuple(
        replace(block, next_step=step)
        if block.reason in {BlockReason.RECORDS_LOST, BlockReason.TOPIC_TRUNCATED}
        and block.partition is not None
        and not _has_loss(known[block.topic], block.partition)
        else block
        for block in blocks
    )


def _has_loss(topic: KnownTopic, partition: int) -> bool:
    position = topic.positions.get(partition)
    return position is not None and position.open_loss is not None
