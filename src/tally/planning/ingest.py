"""The plan of an ingest batch: its ranges follow from the ledger's and Kafka's offsets.

Pure: imports neither Spark, Kafka, MySQL nor Airflow. :mod:`tally.counting.plan` supplies the
facts, and :mod:`tally.ledger` records the plan.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tally.config.pipeline import Pipeline
from tally.model import (
    KafkaSnapshot,
    KnownTopic,
    Loss,
    LossCause,
    OffsetRange,
    PartitionSnapshot,
    PlannedSegment,
    Position,
    Segment,
    TopicPartition,
    TopicSnapshot,
)
from tally.planning.blocks import (
    DOUBTFUL_REASONS,
    Block,
    forgotten,
    identity_block,
    lost,
    missing_partition,
    missing_topic,
    not_begun,
)
from tally.planning.serving import why_not_served


@dataclass(frozen=True, kw_only=True, slots=True)
class NewPartition:
    """A partition that the ledger sees for the first time."""

    partition: TopicPartition
    """The partition."""
    start_offset: int
    """The offset at which its counting begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What planning decided; all of it is recorded in one transaction."""

    new_topics: Mapping[str, str] = field(default_factory=dict)
    """Topics seen for the first time, with Kafka's id."""
    new_partitions: tuple[NewPartition, ...] = ()
    """Partitions seen for the first time, those of new topics included."""
    ranges: tuple[OffsetRange, ...] = ()
    """What is to be read: at most one range per partition, in order."""
    losses: tuple[Loss, ...] = ()
    """Records that are gone and await a decision."""
    restored: tuple[TopicPartition, ...] = ()
    """Partitions whose open loss is resolved: Kafka holds the records again, or the pipeline is now
    sparse."""
    blocks: tuple[Block, ...] = ()
    """What is not read, and why."""

    @property
    def doubtful(self) -> bool:
        """Whether Kafka should be asked again before this plan is used."""
        return any(block.reason in DOUBTFUL_REASONS for block in self.blocks)


def plan_ingest(
    pipeline: Pipeline,
    *,
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot,
    starts: Mapping[TopicPartition, int] | None,
    counted_before: Collection[str] = (),
) -> Plan:
    """Decide what the next ingest batch reads.

    Args:
        pipeline: What the configuration says.
        known: The ledger's current generations of its topics; a new topic is not in it.
        kafka: What Kafka says of them.
        starts: Where counting begins, for each partition of each new topic; None when the
            pipeline's start has not come yet.
        counted_before: New topics that the ledger has counted before it was restored. What Kafka no
            longer holds of these is lost, as it is of a partition that a known topic has gained.
    """
    parts = [
        _plan_topic(pipeline, topic, known.get(topic), kafka, starts, counted_before)
        for topic in sorted(set(pipeline.topics))
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
    pipeline: Pipeline,
    topic: str,
    known: KnownTopic | None,
    kafka: KafkaSnapshot,
    starts: Mapping[TopicPartition, int] | None,
    counted_before: Collection[str],
) -> Plan:
    snapshot = kafka.topics.get(topic)
    if snapshot is None:
        return Plan(blocks=(missing_topic(topic, known),))
    if known is not None:
        block = identity_block(pipeline.name, topic, known, kafka.cluster_id, snapshot.topic_id)
        if block is not None:
            return Plan(blocks=(block,))
        return _plan_partitions(pipeline, topic, known, snapshot, {})
    if topic in counted_before and pipeline.start == "latest":
        return Plan(blocks=(forgotten(pipeline.name, topic),))
    if starts is None and isinstance(pipeline.start, datetime):
        return Plan(blocks=(not_begun(pipeline.name, topic, pipeline.start),))
    begins = starts or {}
    if topic in counted_before:  # it may have begun before what Kafka still holds
        begins = {p: at for p, at in begins.items() if not _is_earliest(at, kafka.partition(p))}
    plan = _plan_partitions(pipeline, topic, None, snapshot, begins)
    return replace(plan, new_topics={topic: snapshot.topic_id})


def _is_earliest(offset: int, held: PartitionSnapshot | None) -> bool:
    return held is not None and offset == held.earliest


def _plan_partitions(
    pipeline: Pipeline,
    topic: str,
    known: KnownTopic | None,
    snapshot: TopicSnapshot,
    starts: Mapping[TopicPartition, int],
) -> Plan:
    """What is read of a topic's partitions; a new one without a start is due from offset 0 on."""
    new, ranges, losses, restored, blocks = [], [], [], [], []
    positions = known.positions if known else {}
    for number in sorted(positions.keys() | snapshot.partitions.keys()):
        partition = TopicPartition(topic=topic, partition=number)
        held = snapshot.partitions.get(number)
        if held is None:
            blocks.append(missing_partition(partition, len(positions), snapshot))
            continue
        position = positions.get(number)
        if position is None:
            begin = starts.get(partition, 0)
            position = Position(start_offset=begin, next_offset=begin)
            new.append(NewPartition(partition=partition, start_offset=begin))
        if (loss := _find_loss(partition, position, held, sparse=pipeline.is_sparse)) is not None:
            losses.append(loss)
            blocks.append(lost(pipeline.name, loss))
            continue
        if position.open_loss is not None:
            restored.append(partition)
        limit = pipeline.max_records_per_partition
        if (offset_range := _next_range(partition, position, held.end, limit)) is not None:
            ranges.append(offset_range)
    return Plan(
        new_partitions=tuple(new),
        ranges=tuple(ranges),
        losses=tuple(losses),
        restored=tuple(restored),
        blocks=tuple(blocks),
    )


def _find_loss(
    partition: TopicPartition, position: Position, held: PartitionSnapshot, *, sparse: bool
) -> Loss | None:
    """The partition's open loss; None when it can be read.

    A truncation stays open when the partition has grown again, because its counted offsets now hold
    other records. An end before ``next_offset`` is no new truncation when an accepted one reaches
    at least as far back.
    """
    at, pending = position.next_offset, position.open_loss
    accepted = _accepted(position, LossCause.TRUNCATED)
    if pending is not None and pending.cause is LossCause.TRUNCATED:
        fell_to = min(held.written_end, pending.range.from_offset)
        return _loss(LossCause.TRUNCATED, partition, fell_to, at)
    if held.written_end < min([at, *(r.from_offset for r in accepted)]):
        return _loss(LossCause.TRUNCATED, partition, held.written_end, at)
    if held.earliest > at:
        return _loss(LossCause.EXPIRED, partition, at, held.earliest)
    if pending is not None and pending.cause is LossCause.MISSING and not sparse:
        return pending
    return None


def _accepted(position: Position, cause: LossCause) -> list[OffsetRange]:
    return [loss.range for loss in position.accepted_losses if loss.cause is cause]


def _loss(cause: LossCause, partition: TopicPartition, start: int, until: int) -> Loss:
    return Loss(
        cause=cause,
        range=OffsetRange(partition=partition, from_offset=start, until_offset=until),
    )


def _next_range(
    partition: TopicPartition, position: Position, end: int, limit: int
) -> OffsetRange | None:
    at = position.next_offset
    # An accepted hole is read by itself: after it, offsets must not be missing.
    accepted = _accepted(position, LossCause.MISSING)
    until = min([end, at + limit, *(r.until_offset for r in accepted)])
    if until <= at:
        return None
    return OffsetRange(partition=partition, from_offset=at, until_offset=until)


def first_offsets(
    snapshot: KafkaSnapshot,
    topics: Sequence[str],
    start: str,
    looked_up: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, int]:
    """The first offset of each partition of topics that are new to the ledger.

    Args:
        snapshot: What Kafka says of the topics.
        topics: The new topics; one that Kafka does not know is skipped.
        start: ``earliest``, ``latest`` or ``timestamp``.
        looked_up: For ``timestamp``: the offset of each partition's first record at or after it,
            None where there is none yet.
    """
    starts = {}
    for partition, held in _held_partitions(snapshot, topics):
        if start == "earliest":
            starts[partition] = held.earliest
        elif start == "latest" or (found := looked_up[partition]) is None:
            starts[partition] = held.written_end
        else:
            starts[partition] = min(max(found, held.earliest), held.written_end)
    return starts


def _held_partitions(
    snapshot: KafkaSnapshot, topics: Sequence[str]
) -> Iterator[tuple[TopicPartition, PartitionSnapshot]]:
    for topic in topics:
        if (held := snapshot.topics.get(topic)) is not None:
            for number, partition in held.partitions.items():
                yield TopicPartition(topic=topic, partition=number), partition


def unreadable(
    segments: Sequence[PlannedSegment], kafka: KafkaSnapshot, *, still_held: bool = True
) -> tuple[str, ...]:
    """Why Kafka cannot serve what was planned; empty when it can.

    Args:
        segments: The planned segments of an open batch.
        kafka: What Kafka says now of their topics.
        still_held: Whether Kafka must still hold the first offsets. False after a read; segments
            with accepted missing offsets are checked all the same, because the number of
            records read does not prove that none is lost.
    """
    causes = []
    for segment in segments:
        must_hold = still_held or segment.missing_accepted
        cause = why_not_served(segment.range, segment, kafka, was="planned", still_held=must_hold)
        if cause is not None:
            causes.append(f"{segment.range}: {cause}")
    return tuple(causes)


def overtaken(segments: Sequence[Segment], known: Mapping[str, KnownTopic]) -> tuple[str, ...]:
    """Why a planned batch can never commit: a committed offset is not the batch's first."""
    causes = []
    for segment in segments:
        topic = known.get(segment.range.partition.topic)
        position = topic.positions.get(segment.range.partition.partition) if topic else None
        if position is not None and position.next_offset != segment.range.from_offset:
            causes.append(f"{segment.range}: the committed offset is {position.next_offset}")
    return tuple(causes)


def beside(plan: Plan, segments: Sequence[Segment], *, by_partition: bool = False) -> Plan:
    """A plan beside open batches: no ranges, losses or blocks of their partitions.

    Args:
        plan: The plan.
        segments: Those of the open batches.
        by_partition: Whether other partitions have ranges; if not, nothing is read before the open
            batch has ended.
    """
    busy = {segment.range.partition for segment in segments}
    return replace(
        plan,
        ranges=tuple(r for r in plan.ranges if by_partition and r.partition not in busy),
        losses=tuple(loss for loss in plan.losses if loss.range.partition not in busy),
        blocks=tuple(
            block
            for block in plan.blocks
            if block.partition is None
            or TopicPartition(topic=block.topic, partition=block.partition) not in busy
        ),
    )
