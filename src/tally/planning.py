"""Which offsets a batch reads: decided from what the ledger and Kafka say, before any data is read.

Pure: imports neither Spark, Kafka, MySQL nor Airflow. :mod:`tally.minute` brings the facts and
:mod:`tally.ledger` writes the decision down.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tally.errors import BlockedError, MissingTopicError, OperatorError
from tally.model import (
    KafkaSnapshot,
    OffsetRange,
    PartitionSnapshot,
    Segment,
    TopicPartition,
    TopicSnapshot,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """Where the counting of one partition began and stands."""

    start_offset: int
    """First offset that was ever to be counted."""
    next_offset: int
    """First offset that is not counted yet."""
    open_loss: OffsetRange | None = None
    """What Kafka no longer held when it was last asked, awaiting a decision."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTopic:
    """The current incarnation of a topic, as the ledger knows it."""

    incarnation_id: int
    """The ledger's key."""
    topic_id: str
    """Kafka's id of the topic."""
    cluster_id: str
    """Id of the cluster it was seen on."""
    positions: Mapping[int, Position]
    """By partition number."""


class BlockReason(StrEnum):
    """Why a topic or a partition is not read; each is an entry of the runbook."""

    TOPIC_MISSING = "topic-missing"
    TOPIC_CHANGED = "topic-changed"
    CLUSTER_CHANGED = "cluster-changed"
    PARTITION_MISSING = "partition-missing"
    RECORDS_LOST = "records-lost"
    TOPIC_TRUNCATED = "topic-truncated"


# Kafka may say these things from stale metadata, so they are asked again before they are believed.
DOUBTFUL_REASONS = frozenset(BlockReason) - {BlockReason.RECORDS_LOST}


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A topic, or one partition of it, that is not read until somebody decides."""

    topic: str
    """The topic."""
    partition: int | None
    """The partition; None when all of the topic is blocked."""
    reason: BlockReason
    """Why."""
    detail: str
    """What the ledger says and what Kafka says, in one sentence."""
    next_step: str
    """The command that decides or repairs it."""

    def __str__(self) -> str:
        """One line for logs and errors."""
        where = self.topic if self.partition is None else f"{self.topic}/{self.partition}"
        return f"{where}: {self.reason}: {self.detail} ({self.next_step})"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPartition:
    """A partition that the ledger sees for the first time."""

    partition: TopicPartition
    """Which."""
    start_offset: int
    """Where its counting begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What planning decided; all of it is written down in one transaction."""

    new_topics: Mapping[str, str] = field(default_factory=dict)
    """Topics seen for the first time, with Kafka's id."""
    new_partitions: tuple[NewPartition, ...] = ()
    """Partitions seen for the first time, those of new topics included."""
    ranges: tuple[OffsetRange, ...] = ()
    """What is to be read, one range a partition at most, in order."""
    losses: tuple[OffsetRange, ...] = ()
    """What Kafka no longer holds and nobody has counted."""
    restored: tuple[TopicPartition, ...] = ()
    """Partitions whose open loss is gone: Kafka holds the records again."""
    blocks: tuple[Block, ...] = ()
    """What is not read, and why."""

    @property
    def doubtful(self) -> bool:
        """Whether Kafka should be asked again before this plan is believed."""
        return any(block.reason in DOUBTFUL_REASONS for block in self.blocks)


def plan_ingest(
    *,
    pipeline: str,
    topics: Sequence[str],
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot,
    starts: Mapping[TopicPartition, int],
    max_records_per_partition: int,
) -> Plan:
    """Decide what the next ingest batch reads.

    Args:
        pipeline: The pipeline's name, for the commands in messages.
        topics: The configured topics.
        known: The ledger's current incarnations of them; a new topic is not in it.
        kafka: What Kafka says of them.
        starts: Where counting begins, for each partition of each new topic.
        max_records_per_partition: Offsets that one range spans at most.
    """
    parts = [
        _plan_topic(pipeline, topic, known.get(topic), kafka, starts, max_records_per_partition)
        for topic in sorted(set(topics))
    ]
    return Plan(
        new_topics={
            topic: topic_id for part in parts for topic, topic_id in part.new_topics.items()
        },
        new_partitions=tuple(new for part in parts for new in part.new_partitions),
        ranges=tuple(offset_range for part in parts for offset_range in part.ranges),
        losses=tuple(loss for part in parts for loss in part.losses),
        restored=tuple(partition for part in parts for partition in part.restored),
        blocks=tuple(block for part in parts for block in part.blocks),
    )


def _plan_topic(
    pipeline: str,
    topic: str,
    known: KnownTopic | None,
    kafka: KafkaSnapshot,
    starts: Mapping[TopicPartition, int],
    limit: int,
) -> Plan:
    snapshot = kafka.topics.get(topic)
    if snapshot is None:
        return Plan(blocks=(_missing_topic(topic, known),))
    if known is None:
        return _plan_new_topic(topic, snapshot, starts, limit)
    if block := identity_block(pipeline, topic, known, kafka.cluster_id, snapshot.topic_id):
        return Plan(blocks=(block,))
    return _plan_known_topic(pipeline, topic, known, snapshot, limit)


def _plan_new_topic(
    topic: str, snapshot: TopicSnapshot, starts: Mapping[TopicPartition, int], limit: int
) -> Plan:
    new = [
        NewPartition(partition=partition, start_offset=starts[partition])
        for partition in (
            TopicPartition(topic=topic, partition=n) for n in sorted(snapshot.partitions)
        )
    ]
    ranges = [
        _next_range(
            p.partition, p.start_offset, snapshot.partitions[p.partition.partition].end, limit
        )
        for p in new
    ]
    return Plan(
        new_topics={topic: snapshot.topic_id},
        new_partitions=tuple(new),
        ranges=tuple(r for r in ranges if r is not None),
    )


def _plan_known_topic(
    pipeline: str, topic: str, known: KnownTopic, snapshot: TopicSnapshot, limit: int
) -> Plan:
    new, ranges, losses, restored, blocks = [], [], [], [], []
    for number in sorted(known.positions.keys() | snapshot.partitions.keys()):
        partition = TopicPartition(topic=topic, partition=number)
        held = snapshot.partitions.get(number)
        if held is None:
            blocks.append(_missing_partition(partition, known, snapshot))
            continue
        position = known.positions.get(number)
        if position is None:
            position = Position(start_offset=held.earliest, next_offset=held.earliest)
            new.append(NewPartition(partition=partition, start_offset=held.earliest))
        at = position.next_offset
        if held.end < at:
            blocks.append(_truncated(partition, at, held.end))
            continue
        if held.earliest > at:
            loss = OffsetRange(partition=partition, from_offset=at, until_offset=held.earliest)
            losses.append(loss)
            blocks.append(_lost(pipeline, loss))
            continue
        if position.open_loss is not None:
            restored.append(partition)
        if (offset_range := _next_range(partition, at, held.end, limit)) is not None:
            ranges.append(offset_range)
    return Plan(
        new_partitions=tuple(new),
        ranges=tuple(ranges),
        losses=tuple(losses),
        restored=tuple(restored),
        blocks=tuple(blocks),
    )


def _next_range(
    partition: TopicPartition, from_offset: int, end: int, limit: int
) -> OffsetRange | None:
    if end <= from_offset:
        return None
    until = min(end, from_offset + limit)
    return OffsetRange(partition=partition, from_offset=from_offset, until_offset=until)


def first_offsets(
    snapshot: KafkaSnapshot,
    topics: Sequence[str],
    start: str,
    looked_up: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int]:
    """Where counting begins in topics that are new to the ledger.

    Args:
        snapshot: What Kafka says of the topics.
        topics: The new ones; one that Kafka does not know is passed over.
        start: ``earliest``, ``latest`` or ``timestamp``.
        looked_up: For ``timestamp``: the offset of each partition's first record at or after it,
            None where there is none yet.
    """
    starts = {}
    for partition, held in _held_partitions(snapshot, topics):
        if start == "earliest":
            starts[partition] = held.earliest
        elif start == "latest" or (found := looked_up[partition]) is None:
            starts[partition] = held.end
        else:
            starts[partition] = min(max(found, held.earliest), held.end)
    return starts


def _held_partitions(
    snapshot: KafkaSnapshot, topics: Sequence[str]
) -> Iterator[tuple[TopicPartition, PartitionSnapshot]]:
    for topic in topics:
        if (held := snapshot.topics.get(topic)) is not None:
            for number, partition in held.partitions.items():
                yield TopicPartition(topic=topic, partition=number), partition


def unreadable(
    segments: Sequence[Segment], kafka: KafkaSnapshot, *, still_held: bool = True
) -> tuple[str, ...]:
    """Why Kafka cannot serve what was planned; empty when it can.

    Args:
        segments: The planned segments of an open batch.
        kafka: What Kafka says now of their topics.
        still_held: Whether the records must still be there; not asked of what was read already.
    """
    causes = (_why_unreadable(segment, kafka, still_held=still_held) for segment in segments)
    return tuple(cause for cause in causes if cause is not None)


def _why_unreadable(segment: Segment, kafka: KafkaSnapshot, *, still_held: bool) -> str | None:
    planned = segment.range
    topic = kafka.topics.get(planned.partition.topic)
    held = topic.partitions.get(planned.partition.partition) if topic else None
    if segment.cluster_id != kafka.cluster_id:
        cause = f"planned on cluster {segment.cluster_id}, this is {kafka.cluster_id}"
    elif topic is None:
        cause = "Kafka has no such topic any more"
    elif topic.topic_id != segment.topic_id:
        cause = f"planned on topic id {segment.topic_id}, now {topic.topic_id}"
    elif held is None:
        cause = "Kafka leaves the partition out"
    elif held.end < planned.until_offset:
        cause = f"Kafka's end offset is now {held.end}"
    elif still_held and held.earliest > planned.from_offset:
        cause = f"Kafka's first offset is now {held.earliest}"
    else:
        return None
    return f"{planned}: {cause}"


def overtaken(segments: Sequence[Segment], known: Mapping[str, KnownTopic]) -> tuple[str, ...]:
    """Why a planned batch can never commit: the ledger does not stand where it begins."""
    causes = []
    for segment in segments:
        topic = known.get(segment.range.partition.topic)
        position = topic.positions.get(segment.range.partition.partition) if topic else None
        if position is not None and position.next_offset != segment.range.from_offset:
            causes.append(f"{segment.range}: the ledger stands at {position.next_offset}")
    return tuple(causes)


def beside(plan: Plan, segments: Sequence[Segment]) -> Plan:
    """What a plan has to say while a batch is open: nothing to read, nothing of its partitions."""
    busy = {segment.range.partition for segment in segments}
    return replace(
        plan,
        ranges=(),
        losses=tuple(loss for loss in plan.losses if loss.partition not in busy),
        blocks=tuple(
            block
            for block in plan.blocks
            if block.partition is None
            or TopicPartition(topic=block.topic, partition=block.partition) not in busy
        ),
    )


def identity_block(
    pipeline: str, topic: str, known: KnownTopic, cluster_id: str, topic_id: str
) -> Block | None:
    """A block when the topic is not the one whose offsets the ledger holds."""
    adopt = f"tally topics adopt {pipeline} {topic} --reason …"
    if cluster_id != known.cluster_id:
        return Block(
            topic=topic,
            partition=None,
            reason=BlockReason.CLUSTER_CHANGED,
            detail=f"counted on cluster {known.cluster_id}, Kafka says {cluster_id}",
            next_step=f"correct kafka.bootstrap_servers, or: {adopt}",
        )
    if topic_id != known.topic_id:
        return Block(
            topic=topic,
            partition=None,
            reason=BlockReason.TOPIC_CHANGED,
            detail=f"counted with topic id {known.topic_id}, Kafka says {topic_id}: "
            "the topic was deleted and created again",
            next_step=adopt,
        )
    return None


def _missing_topic(topic: str, known: KnownTopic | None) -> Block:
    detail = "Kafka has no such topic" + (" any more" if known else "")
    return Block(
        topic=topic,
        partition=None,
        reason=BlockReason.TOPIC_MISSING,
        detail=detail,
        next_step="create the topic, or take it out of the pipeline's topics",
    )


def _missing_partition(
    partition: TopicPartition, known: KnownTopic, snapshot: TopicSnapshot
) -> Block:
    return Block(
        topic=partition.topic,
        partition=partition.partition,
        reason=BlockReason.PARTITION_MISSING,
        detail=f"the ledger knows {len(known.positions)} partitions, "
        f"Kafka answers {len(snapshot.partitions)}",
        next_step="check the brokers; a topic never loses a partition",
    )


def _truncated(partition: TopicPartition, next_offset: int, end: int) -> Block:
    return Block(
        topic=partition.topic,
        partition=partition.partition,
        reason=BlockReason.TOPIC_TRUNCATED,
        detail=f"counted up to {next_offset}, Kafka ends at {end}",
        next_step="see docs/runbook.md, topic-truncated",
    )


def _lost(pipeline: str, loss: OffsetRange) -> Block:
    return Block(
        topic=loss.partition.topic,
        partition=loss.partition.partition,
        reason=BlockReason.RECORDS_LOST,
        detail=f"[{loss.from_offset}, {loss.until_offset}) was never counted and Kafka no longer "
        "holds it",
        next_step=f"restore it, or: tally losses accept {pipeline} --reason …",
    )


def blocked_error(pipeline: str, blocks: Sequence[Block]) -> OperatorError:
    """The error a run ends with while something is blocked."""
    kind = (
        MissingTopicError
        if all(block.reason is BlockReason.TOPIC_MISSING for block in blocks)
        else BlockedError
    )
    return kind(
        f"pipeline {pipeline}: not read: " + "; ".join(str(block) for block in blocks),
        next_step=blocks[0].next_step,
    )
