"""Live segments joined into ranges for a recount, and whether Kafka still holds them. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tally.ledger.segments import SegmentRecord
from tally.model import KafkaSnapshot, OffsetRange, TopicPartition
from tally.planning.serving import why_not_served

# Offsets that one read takes from one partition, unless a single segment spans more: large enough
# to make the start of a Spark job cheap, small enough to show progress.
OFFSETS_PER_RANGE: Final = 2_000_000

# One statement selects all segments of a chunk, and it must stay small; a quiet pipeline has many
# small segments.
SEGMENTS_PER_RANGE: Final = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Consecutive live segments of one partition, read as one range."""

    segments: tuple[SegmentRecord, ...]
    """In order of offset; each begins where the one before ends."""

    @property
    def range(self) -> OffsetRange:
        """From the first one's start to the last one's end."""
        return OffsetRange(
            partition=self.segments[0].range.partition,
            from_offset=self.segments[0].range.from_offset,
            until_offset=self.segments[-1].range.until_offset,
        )

    @property
    def segment_ids(self) -> list[int]:
        """The ledger's keys."""
        return [segment.segment_id for segment in self.segments]

    def expected(self, key: str) -> int:
        """The sum of one of the totals that were committed."""
        return sum(getattr(segment.totals, key) for segment in self.segments)


def join_segments(
    segments: Sequence[SegmentRecord],
    offsets_per_range: int = OFFSETS_PER_RANGE,
    segments_per_range: int = SEGMENTS_PER_RANGE,
) -> list[Chunk]:
    """Consecutive segments of a partition joined, up to a number of offsets and of segments.

    Args:
        segments: Of current topic generations, in order of partition and offset.
        offsets_per_range: A chunk spans no more, unless it is a single segment.
        segments_per_range: A chunk has no more.
    """
    chunks: list[list[SegmentRecord]] = []
    for segment in segments:
        last = chunks[-1] if chunks else None
        if (
            last is not None
            and len(last) < segments_per_range
            and last[-1].range.partition == segment.range.partition
            and last[-1].range.until_offset == segment.range.from_offset
            and segment.range.until_offset - last[0].range.from_offset <= offsets_per_range
        ):
            last.append(segment)
        else:
            chunks.append([segment])
    return [Chunk(segments=tuple(chunk)) for chunk in chunks]


def rounds(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """Groups of chunks that one read can take: at most one chunk of each partition."""
    waiting: dict[TopicPartition, list[Chunk]] = {}
    for chunk in chunks:
        waiting.setdefault(chunk.range.partition, []).append(chunk)
    while waiting:
        yield [queue.pop(0) for queue in waiting.values()]
        waiting = {partition: queue for partition, queue in waiting.items() if queue}


def why_not_held(segment: SegmentRecord, kafka: KafkaSnapshot) -> str | None:
    """Why a segment cannot be recounted; None when Kafka holds all of it."""
    if not segment.is_current:
        return f"of the retired topic id {segment.topic_id}"
    return why_not_served(segment.range, segment, kafka, was="counted")
