"""Live segments joined into ranges for a recount, and whether Kafka still holds them. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tally.groups import in_groups
from tally.ledger.records import SegmentRecord
from tally.model import KafkaSnapshot, OffsetRange, TopicPartition
from tally.planning.serving import why_not_served

# Offsets that one read takes from one partition, unless a single segment spans more: large enough
# to make the start of a Spark job cheap, small enough to show progress.
OFFSETS_PER_RANGE: Final = 2_000_000

# Dead letters that are compared at once: their digests are held in memory.
LETTERS_PER_RANGE: Final = 50_000

# One statement selects all segments of some chunks, and it must stay small; a quiet pipeline has
# many small segments.
SEGMENTS_PER_RANGE: Final = 2_000

# A read finds the segment of each record in a table that each Spark task holds.
SEGMENTS_PER_ROUND: Final = 50_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Consecutive live segments of one partition, read as one range."""

    segments: tuple[SegmentRecord, ...]
    """In order of offset; each begins where the one before ends."""

    @property
    def range(self) -> OffsetRange:
        """From the first one's start to the last one's end."""
        return replace(self.segments[0].range, until_offset=self.segments[-1].range.until_offset)

    @property
    def segment_ids(self) -> list[int]:
        """The ledger's keys."""
        return [segment.segment_id for segment in self.segments]

    @property
    def has_few_letters(self) -> bool:
        """Whether its dead letters can be compared at once."""
        return self._malformed <= LETTERS_PER_RANGE

    @property
    def letters(self) -> int:
        """Dead letters that are compared."""
        return self._malformed if self.has_few_letters else 0

    @property
    def _malformed(self) -> int:
        return sum(_malformed(segment) for segment in self.segments)

    def segment_at(self, offset: int) -> SegmentRecord:
        """The segment that an offset lies in."""
        after = bisect_right(self.segments, offset, key=lambda s: s.range.from_offset)
        return self.segments[after - 1]


def _malformed(segment: SegmentRecord) -> int:
    return segment.totals.malformed if segment.totals else 0


def join_segments(segments: Sequence[SegmentRecord]) -> list[Chunk]:
    """Consecutive segments of a partition joined, up to a number of offsets, segments and letters.

    A chunk of more offsets or dead letters is a single segment.

    Args:
        segments: Of current topic generations, in order of partition and offset.
    """
    chunks: list[list[SegmentRecord]] = []
    letters = 0
    for segment in segments:
        last = chunks[-1] if chunks else None
        if (
            last is not None
            and len(last) < SEGMENTS_PER_RANGE
            and last[-1].range.partition == segment.range.partition
            and last[-1].range.until_offset == segment.range.from_offset
            and segment.range.until_offset - last[0].range.from_offset <= OFFSETS_PER_RANGE
            and letters + _malformed(segment) <= LETTERS_PER_RANGE
        ):
            last.append(segment)
            letters += _malformed(segment)
        else:
            chunks.append([segment])
            letters = _malformed(segment)
    return [Chunk(segments=tuple(chunk)) for chunk in chunks]


def rounds(chunks: Sequence[Chunk]) -> Iterator[list[Chunk]]:
    """Groups of chunks that one read can take: at most one chunk of each partition.

    A group of more segments, or with more dead letters to compare, than one read can take is a
    single chunk.
    """
    waiting: dict[TopicPartition, list[Chunk]] = {}
    for chunk in chunks:
        waiting.setdefault(chunk.range.partition, []).append(chunk)
    while waiting:
        first = [queue.pop(0) for queue in waiting.values()]
        yield from comparable_at_once(first, SEGMENTS_PER_ROUND)
        waiting = {partition: queue for partition, queue in waiting.items() if queue}


def comparable_at_once(chunks: Sequence[Chunk], segments_max: int) -> Iterator[list[Chunk]]:
    """Chunks in groups of at most so many segments, and of dead letters that are compared at once.

    A larger one is a group by itself.
    """
    for some in in_groups(chunks, lambda chunk: len(chunk.segments), segments_max):
        yield from in_groups(some, lambda chunk: chunk.letters, LETTERS_PER_RANGE)


def why_not_held(segment: SegmentRecord, kafka: KafkaSnapshot) -> str | None:
    """Why a segment cannot be recounted; None when Kafka holds all of it."""
    if not segment.is_current:
        return f"of the retired topic id {segment.topic_id}"
    return why_not_served(segment.range, segment, kafka, was="counted")
