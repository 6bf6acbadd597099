"""The plan of an ingest batch: its ranges follow from the ledger's and Kafka's offsets.

Pure: imports neither Spark, Kafka, MySQL nor Airflow. :mod:`tally.counting.plan` supplies the
facts, and :mod:`tally.ledger` records the plan.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tally import model
from tally.config.pipeline import Pipeline
from tally.model import Loss, LossCause, OffsetRange, Position, TopicPartition
from tally.planning import blocks
from tally.planning.blocks import Block
from tally.planning.serving import why_not_served


@dataclass(kw_only=True, slots=True)
class Plan:
    """What planning decided; all of it is recorded in one transaction."""

    new_topics: dict[str, model.Generation] = field(default_factory=dict)
    """Topics seen for the first time, as Kafka identifies them."""
    new_partitions: dict[TopicPartition, int] = field(default_factory=dict)
    """Partitions seen for the first time, those of new topics included, with the offset at which
    counting begins."""
    ranges: list[OffsetRange] = field(default_factory=list)
    """What is to be read: at most one range per partition, in order."""
    losses: list[Loss] = field(default_factory=list)
    """Records that are gone and await a decision."""
    restored: list[TopicPartition] = field(default_factory=list)
    """Partitions whose open loss is resolved: Kafka holds the records again, or the pipeline is now
    sparse."""
    blocks: list[Block] = field(default_factory=list)
    """What is not read, and why."""

    @property
    def doubtful(self) -> bool:
        """Whether Kafka should be asked again before this plan is used."""
        return any(block.reason in blocks.DOUBTFUL_REASONS for block in self.blocks)


def plan_ingest(
    pipeline: Pipeline,
    *,
    known: Mapping[str, model.KnownTopic],
    kafka: model.KafkaSnapshot,
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
    plan = Plan()
    for topic in sorted(set(pipeline.topics)):
        ours = known.get(topic)
        block = blocks.topic_block(
            pipeline,
            topic,
            ours,
            kafka,
            has_begun=starts is not None,
            counted_before=topic in counted_before,
        )
        if block is not None:
            plan.blocks.append(block)
            continue
        snapshot = kafka.topics[topic]
        begins = starts or {}
        if ours is not None:
            begins = {}
        else:
            plan.new_topics[topic] = snapshot
        if topic in counted_before:  # it may have begun before what Kafka still holds
            begins = {p: at for p, at in begins.items() if not _is_earliest(at, kafka.partition(p))}
        _plan_partitions(plan, pipeline, topic, ours, snapshot, begins)
    return plan


def _is_earliest(offset: int, held: model.PartitionSnapshot | None) -> bool:
    return held is not None and offset == held.earliest


def _plan_partitions(
    plan: Plan,
    pipeline: Pipeline,
    topic: str,
    known: model.KnownTopic | None,
    snapshot: model.TopicSnapshot,
    starts: Mapping[TopicPartition, int],
) -> None:
    """Add what is read of a topic's partitions; a new one without a start is due from offset 0."""
    positions = known.positions if known else {}
    for number in sorted(positions.keys() | snapshot.partitions.keys()):
        partition = TopicPartition(topic=topic, partition=number)
        held = snapshot.partitions.get(number)
        if held is None:
            plan.blocks.append(blocks.missing_partition(partition, len(positions), snapshot))
            continue
        position = positions.get(number)
        if position is None:
            begin = plan.new_partitions[partition] = starts.get(partition, 0)
            position = Position(start_offset=begin, next_offset=begin)
        if (loss := _find_loss(partition, position, held, sparse=pipeline.is_sparse)) is not None:
            plan.losses.append(loss)
            plan.blocks.append(blocks.lost(pipeline.name, loss))
            continue
        if position.open_loss is not None:
            plan.restored.append(partition)
        limit = pipeline.max_records_per_partition
        if (offset_range := _next_range(partition, position, held.end, limit)) is not None:
            plan.ranges.append(offset_range)


def _find_loss(
    partition: TopicPartition, position: Position, held: model.PartitionSnapshot, *, sparse: bool
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
    snapshot: model.KafkaSnapshot,
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
    for topic in topics:
        of_topic = snapshot.topics.get(topic)
        for number, held in of_topic.partitions.items() if of_topic else ():
            partition = TopicPartition(topic=topic, partition=number)
            if start == "earliest":
                starts[partition] = held.earliest
            elif start == "latest" or (found := looked_up[partition]) is None:
                starts[partition] = held.written_end
            else:
                starts[partition] = min(max(found, held.earliest), held.written_end)
    return starts


def unreadable(
    segments: Sequence[model.PlannedSegment], kafka: model.KafkaSnapshot, *, still_held: bool = True
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


def offset_conflicts(
    segments: Sequence[model.Segment], known: Mapping[str, model.KnownTopic]
) -> tuple[str, ...]:
    """Why a planned batch can never commit: a committed offset is not the batch's first.

    Or the topic has been adopted since, and its offsets are now those of other records.
    """
    causes = []
    for segment in segments:
        topic = known.get(segment.range.partition.topic)
        position = topic.positions.get(segment.range.partition.partition) if topic else None
        if topic is not None and not segment.is_same(topic):
            causes.append(f"{segment.range}: another generation of the topic was adopted")
        elif position is not None and position.next_offset != segment.range.from_offset:
            causes.append(f"{segment.range}: the committed offset is {position.next_offset}")
    return tuple(causes)


def beside(plan: Plan, segments: Sequence[model.Segment], *, by_partition: bool = False) -> Plan:
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
        ranges=[r for r in plan.ranges if by_partition and r.partition not in busy],
        losses=[loss for loss in plan.losses if loss.range.partition not in busy],
        blocks=[block for block in plan.blocks if block.place not in map(str, busy)],
    )
