"""What waits in Kafka to be counted: all of it, and what should have been counted by now."""

from collections.abc import Iterable, Mapping, Sequence

from tally.config.pipeline import Pipeline
from tally.model import KafkaSnapshot, KnownTopic, PartitionSnapshot, Position, TopicPartition
from tally.planning.blocks import OTHER_RECORDS, Block


def lag(
    pipeline: Pipeline,
    position: Position | None,
    held: PartitionSnapshot | None,
    blocks: Sequence[Block],
) -> int | None:
    """Offsets that can be read and are not counted; None when that is not known.

    Args:
        pipeline: The pipeline.
        position: What the ledger has of the partition; None for a new one.
        held: What Kafka holds of it; None when Kafka did not say.
        blocks: Why it is not read.
    """
    if held is None or any(block.reason in OTHER_RECORDS for block in blocks):
        return None
    if position is not None:
        return max(0, held.end - max(position.next_offset, held.earliest))
    # A partition that the pipeline has not read yet begins at its start.
    return {"earliest": held.end - held.earliest, "latest": 0}.get(str(pipeline.start))


def waiting(
    pipeline: Pipeline,
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot,
    partitions: Iterable[TopicPartition],
) -> list[TopicPartition]:
    """Those of the partitions in which something is to be counted."""
    return [
        where
        for where in partitions
        if (held := kafka.partition(where)) and _first(pipeline, where, known, held) < held.end
    ]


def overdue(
    pipeline: Pipeline,
    where: TopicPartition,
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot,
    late_until: Mapping[TopicPartition, int | None],
) -> int:
    """Offsets of a partition that wait for longer than the schedule allows.

    Args:
        pipeline: The pipeline.
        where: The partition.
        known: The ledger's topics.
        kafka: What Kafka holds.
        late_until: The first offset of each waiting partition that is not overdue; None when all
            of its records are.
    """
    held = kafka.partition(where)
    if held is None or where not in late_until:
        return 0
    until = late_until[where]
    end = held.end if until is None else min(until, held.end)
    return max(0, end - _first(pipeline, where, known, held))


def _first(
    pipeline: Pipeline,
    where: TopicPartition,
    known: Mapping[str, KnownTopic],
    held: PartitionSnapshot,
) -> int:
    """The first offset that waits; the end of a new partition whose start is not known here."""
    topic = known.get(where.topic)
    position = topic.positions.get(where.partition) if topic else None
    if position is not None:
        return max(position.next_offset, held.earliest)
    return held.earliest if pipeline.start == "earliest" else held.end
