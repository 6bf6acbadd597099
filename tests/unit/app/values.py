"""Values that the tests of views and commands start from; each takes what a case changes."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from tally.config.pipeline import Pipeline
from tally.model import (
    Batch,
    BatchKind,
    BatchState,
    KafkaSnapshot,
    KnownTopic,
    OffsetRange,
    PartitionSnapshot,
    Position,
    Segment,
    SegmentState,
    SegmentTotals,
    TopicPartition,
    TopicSnapshot,
)

Record = TypeVar("Record")

AT = datetime(2026, 11, 20, 14, 0, 0, tzinfo=UTC)
HERE = TopicPartition(topic="alog", partition=3)


def pipeline(**keys: Any) -> Pipeline:
    """A pipeline with the defaults over the topic `a`."""
    return Pipeline.model_validate({"name": "first", "topics": ["a"], **keys})


def span(start: int, until: int, partition: TopicPartition = HERE) -> OffsetRange:
    """A range."""
    return OffsetRange(partition=partition, from_offset=start, until_offset=until)


def totals(matched: int = 0, unmatched: int = 0, malformed: int = 0) -> SegmentTotals:
    """Counts that add up."""
    return SegmentTotals(
        records=matched + unmatched + malformed,
        matched=matched,
        unmatched=unmatched,
        malformed=malformed,
        first_offset=None,
        last_offset=None,
    )


def batch(*ranges: OffsetRange, **values: Any) -> Batch:
    """A planned batch of some ranges."""
    segments = tuple(
        Segment(segment_id=n, topic_id="t", cluster_id="c", range=r, state=SegmentState.PLANNED)
        for n, r in enumerate(ranges)
    )
    planned = {"batch_id": 7, "pipeline": "p", "kind": BatchKind.INGEST, "attempt": 0}
    planned |= {"state": BatchState.PLANNED, "planned_at": AT, "claimed_at": None}
    return Batch(**{**planned, "segments": segments, **values})


def blank(kind: type[Record], **values: Any) -> Record:
    """A record of which only some fields matter; of the others nothing is known."""
    return kind(**{**dict.fromkeys(field.name for field in fields(kind)), **values})


def known(*positions: Position, **values: Any) -> dict[str, KnownTopic]:
    """The ledger's side of the topic `a`: positions of partitions 0, 1 and so on."""
    topic = {"incarnation_id": 1, "topic_id": "id", "cluster_id": "cluster", **values}
    return {"a": KnownTopic(positions=dict(enumerate(positions)), **topic)}


def kafka(*held: tuple[int, int], topic: str = "a", topic_id: str = "id") -> KafkaSnapshot:
    """Kafka's side: earliest and end of partitions 0, 1 and so on; without any, no topic."""
    partitions = {n: PartitionSnapshot(earliest=e, end=end) for n, (e, end) in enumerate(held)}
    topics = {topic: TopicSnapshot(topic_id=topic_id, partitions=partitions)} if held else {}
    return KafkaSnapshot(cluster_id="cluster", topics=topics)
