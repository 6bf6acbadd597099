"""What waits in Kafka to be counted: all of it, and what should have been counted by now."""

from collections.abc import Iterable, Mapping, Sequence

from tally.config.pipeline import Pipeline
from tally.model import (
    KafkaSnapshot,
    KnownTopic,
    LossCause,
    PartitionSnapshot,
    Position,
    TopicPartition,
)
from tally.planning.blocks import OTHER_RECORDS, Block


def lag(
    pipeline: Pipeline,
    position: Position | None,
    held: PartitionSnapshot | None,
    blocks: Sequence[Block],
) -> int | None:
    """Offsets that Kafka holds and that are not counted; None when that is not known.

    Of a topic that was created again, or of another cluster, nothing is counted.

    Args:
        pipeline: The pipeline.
        position: What the ledger has of the partition; None for a new one.
        held: What Kafka holds of it; None when Kafka did not say.
        blocks: Why it is not read.
    """
    if held is None:
        return None
    if any(block.reason in OTHER_RECORDS for block in blocks):
        return held.end - held.earliest
    if position is not None:
        return held.end - _uncounted_from(position, held)
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


def late_offsets(
    pipeline: Pipeline,
    where: TopicPartition,
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot,
    late_until: Mapping[TopicPartition, int | None],
) -> int:
    """Offsets of a partition that wait since before a time.

    Args:
        pipeline: The pipeline.
        where: The partition.
        known: The ledger's topics.
        kafka: What Kafka holds.
        late_until: The first offset of each waiting partition that Kafka got at that time or
            later; None when there is none.
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
        return _uncounted_from(position, held)
    return held.earliest if pipeline.start == "earliest" else held.end


def _uncounted_from(position: Position, held: PartitionSnapshot) -> int:
    """The first offset that waits; behind a truncation nothing is counted."""
    loss = position.open_loss
    is_truncated = loss is not None and loss.cause is LossCause.TRUNCATED
    counted = loss.range.from_offset if loss and is_truncated else position.next_offset
    return min(held.end, max(counted, held.earliest))
