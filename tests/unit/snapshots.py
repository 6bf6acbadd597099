"""What Kafka holds of one topic, and up to where the ledger has counted it."""

from typing import Any

from tally.model import (
    KafkaSnapshot,
    KnownTopic,
    OffsetRange,
    PartitionSnapshot,
    Position,
    TopicPartition,
    TopicSnapshot,
)

P0 = TopicPartition(topic="alog", partition=0)


def offsets(from_offset: int, until_offset: int, partition: TopicPartition = P0) -> OffsetRange:
    """A range, of the first partition if it is not said of which."""
    return OffsetRange(partition=partition, from_offset=from_offset, until_offset=until_offset)


def kafka(
    *partitions: tuple[int, int] | None, topic_id: str = "A", cluster_id: str = "C"
) -> KafkaSnapshot:
    """What Kafka holds of each partition, from the earliest offset to the end; None: no answer."""
    held = {n: PartitionSnapshot(earliest=p[0], end=p[1]) for n, p in enumerate(partitions) if p}
    topic = TopicSnapshot(topic_id=topic_id, partitions=held)
    return KafkaSnapshot(cluster_id=cluster_id, topics={"alog": topic} if held else {})


def known(*next_offsets: int, start: int = 0, **of_first: Any) -> dict[str, KnownTopic]:
    """Up to where each partition is counted; the losses of the first one."""
    positions = {
        n: Position(start_offset=start, next_offset=at, **({} if n else of_first))
        for n, at in enumerate(next_offsets)
    }
    return {"alog": KnownTopic(incarnation_id=1, topic_id="A", cluster_id="C", positions=positions)}
