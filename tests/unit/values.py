"""Values that tests start from; each takes what a case changes."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from tally import model
from tally.config.pipeline import Pipeline

AT = datetime(2026, 11, 20, 14, 0, 0, tzinfo=UTC)
P0 = model.TopicPartition(topic="alog", partition=0)


def pipeline(**keys: Any) -> Pipeline:
    """A pipeline with the defaults over the topic `alog`."""
    return Pipeline.named("first", {"topics": ["alog"], **keys})


def span(start: int, until: int, partition: int = 0) -> model.OffsetRange:
    place = model.TopicPartition(topic="alog", partition=partition)
    return model.OffsetRange(partition=place, from_offset=start, until_offset=until)


def totals(
    matched: int = 0, unmatched: int = 0, malformed: int = 0, first: Any = None, last: Any = None
) -> model.SegmentTotals:
    return model.SegmentTotals(
        records=matched + unmatched + malformed,
        matched=matched,
        unmatched=unmatched,
        malformed=malformed,
        first_offset=first,
        last_offset=last,
    )


def batch(*ranges: model.OffsetRange, **values: Any) -> model.Batch:
    segments = tuple(
        model.PlannedSegment(
            segment_id=n, topic_id="t", cluster_id="c", range=r, state=model.SegmentState.PLANNED
        )
        for n, r in enumerate(ranges)
    )
    planned = {"batch_id": 7, "pipeline": "p", "kind": model.BatchKind.INGEST, "attempt": 0}
    planned |= {"state": model.BatchState.PLANNED, "planned_at": AT, "claimed_at": None}
    return model.Batch(**{**planned, "segments": segments, **values})


def blank(kind: type[Any], /, **values: Any) -> Any:
    """A record of which only some fields matter; of the others nothing is known."""
    return kind(**{**dict.fromkeys(field.name for field in fields(kind)), **values})


def known(
    *next_offsets: int, start: int = 0, topic_id: str = "A", cluster_id: str = "C", **of_first: Any
) -> dict[str, model.KnownTopic]:
    """Up to where each partition is counted; the losses of the first one."""
    positions = {
        n: model.Position(start_offset=start, next_offset=at, **({} if n else of_first))
        for n, at in enumerate(next_offsets)
    }
    ids = {"generation_id": 1, "topic_id": topic_id, "cluster_id": cluster_id}
    return {"alog": model.KnownTopic(positions=positions, **ids)}


def kafka(
    *partitions: tuple[int, int] | None, topic_id: str = "A", cluster_id: str = "C"
) -> model.KafkaSnapshot:
    """What Kafka holds of each partition, from the earliest offset to the end; None: no answer."""
    held = {
        n: model.PartitionSnapshot(earliest=p[0], end=p[1]) for n, p in enumerate(partitions) if p
    }
    alog = model.TopicSnapshot(topic_id=topic_id, cluster_id=cluster_id, partitions=held)
    return model.KafkaSnapshot(cluster_id=cluster_id, topics={"alog": alog} if held else {})
