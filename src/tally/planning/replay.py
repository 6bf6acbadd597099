"""The plan of a replay: which ranges it reads and which segments it replaces. Pure.

Requested ranges are widened to whole segments, because a live segment is replaced as a whole. They
are then cut into batches, each with at most one range of a partition.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from tally.model import KafkaSnapshot, KnownTopic, LossCause, OffsetRange, TopicPartition
from tally.planning.serving import why_not_served
from tally.views import view_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """A live segment. An accepted loss is none: a replay may count any part of it."""

    range: OffsetRange
    """Its offsets."""
    segment_id: int
    """The ledger's key."""
    alone: bool = False
    """Whether its offsets may be missing; it is then read in a range of its own."""
    folded: bool = False
    """Whether it was folded, so that it can no longer be replaced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One range that is reprocessed, and the segments that it replaces."""

    range: OffsetRange
    """What is read."""
    replaces: tuple[int, ...] = ()
    """Live segments, by the ledger's key; all of them lie inside the range."""
    never_counted: int = 0
    """Offsets that no live segment holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What Kafka holds of a partition."""

    partition: TopicPartition
    """The partition."""
    earliest: int
    """The first offset that Kafka holds."""
    end: int
    """The first offset that cannot be read yet."""

    def __str__(self) -> str:
        """``[100, 900)``."""
        return f"[{self.earliest}, {self.end})"

    @classmethod
    def of(cls, kafka: KafkaSnapshot, partition: TopicPartition) -> "Held | None":
        """What Kafka holds of it; None when Kafka does not answer for it."""
        found = kafka.partition(partition)
        return None if found is None else view_of(cls, found, partition=partition)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A range that cannot be reprocessed."""

    range: OffsetRange
    """The range."""
    cause: str
    """Why it cannot be reprocessed."""
    kafka_holds: Held | None = None
    """What Kafka holds of the partition; null when that is not known."""

    def __str__(self) -> str:
        """``alog/0 [300, 310): Kafka no longer holds …``."""
        return f"{self.range}: {self.cause}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayPlan:
    """What a replay would do."""

    asked: tuple[OffsetRange, ...] = ()
    """The requested ranges, in order, overlaps joined."""
    generations: tuple[str, ...] = ()
    """Which generations of their topics are read: the same offsets of another are other records."""
    batches: tuple[tuple[Piece, ...], ...] = ()
    """The pieces of each batch; together they are the widened ranges."""
    by_partition: bool = False
    """Whether each batch has one piece alone, committed by itself."""
    refusals: tuple[Refusal, ...] = ()
    """Ranges that cannot be reprocessed; if there is one, there are no batches."""
    possible: tuple[OffsetRange, ...] = ()
    """What of the requested ranges could be reprocessed without the rest, when there are
    refusals."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All pieces, in order of partition and offset."""
        pieces = (piece for batch in self.batches for piece in batch)
        return tuple(sorted(pieces, key=lambda piece: piece.range))

    @property
    def rounds(self) -> int:
        """How many reads it takes: batches of different partitions are read at once."""
        of_partition = Counter(piece.range.partition for piece in self.pieces)
        return max(of_partition.values(), default=0)

    @property
    def widened(self) -> tuple[OffsetRange, ...]:
        """What is read, in order, neighbours joined."""
        return tuple(join_ranges([piece.range for piece in self.pieces], touching=True))

    @property
    def is_wider(self) -> bool:
        """Whether more is read than was asked for."""
        return list(self.widened) != join_ranges(self.asked, touching=True)

    @property
    def replaces(self) -> tuple[int, ...]:
        """All segments that are replaced."""
        return tuple(sorted(i for piece in self.pieces for i in piece.replaces))


NEVER_PLANNED: Final = "the pipeline has not counted this partition"


def plan_replay(
    asked: Sequence[OffsetRange],
    *,
    known: Mapping[str, KnownTopic],
    tiles: Mapping[TopicPartition, Sequence[Tile]],
    kafka: KafkaSnapshot,
    offsets_per_range: int,
    sparse: bool = False,
    by_partition: bool = False,
) -> ReplayPlan:
    """Widen the requested ranges and cut them into batches, or say what cannot be reprocessed.

    Args:
        asked: Ranges, in any order; they may overlap.
        known: The current generations of the topics.
        tiles: By partition, in order: at least all tiles that touch a requested range.
        kafka: What Kafka says of the topics.
        offsets_per_range: The most offsets of one range, unless a single segment is larger.
        sparse: Whether offsets may be missing anywhere. Counted and other offsets are then not
            read in one range: new records could hide that counted ones are gone.
        by_partition: Whether each batch has one range alone.
    """
    ranges = join_ranges(asked)
    refusals: list[Refusal] = []
    possible: list[OffsetRange] = []
    wide: list[OffsetRange] = []
    for r in ranges:
        touched, topic = _touched(tiles, r), known.get(r.partition.topic)
        wide.append(_widen(r, touched))
        if cause := _why_refused(r, touched, topic, kafka):
            held = Held.of(kafka, r.partition)
            refusals.append(Refusal(range=r, cause=cause, kafka_holds=held))
            possible.extend(_possible(r, touched, topic, kafka))
        else:
            possible.append(r)
    if refusals:
        return ReplayPlan(asked=tuple(ranges), refusals=tuple(refusals), possible=tuple(possible))
    pieces: dict[TopicPartition, list[Piece]] = {}
    for r in join_ranges(wide, touching=True):  # two ranges may touch the same segment
        cut = _cut(r, _touched(tiles, r), offsets_per_range, sparse=sparse)
        pieces.setdefault(r.partition, []).extend(cut)
    rounds = tuple(_rounds(pieces))
    if by_partition:
        rounds = tuple((piece,) for of_round in rounds for piece in of_round)
    topics = sorted({r.partition.topic for r in ranges})
    return ReplayPlan(
        asked=tuple(ranges),
        generations=tuple(f"{known[t].cluster_id} {known[t].topic_id}" for t in topics),
        batches=rounds,
        by_partition=by_partition,
    )


def join_ranges(ranges: Sequence[OffsetRange], *, touching: bool = False) -> list[OffsetRange]:
    """The same offsets in order, overlapping ranges joined, and touching ones if asked to."""
    joined: list[OffsetRange] = []
    for r in sorted(ranges):
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.partition == r.partition
            and r.from_offset < last.until_offset + int(touching)
        ):
            until = max(last.until_offset, r.until_offset)
            joined[-1] = replace(last, until_offset=until)
        else:
            joined.append(r)
    return joined


def overlap(a: OffsetRange, b: OffsetRange) -> bool:
    """Whether two ranges of a partition have an offset in common."""
    return a.from_offset < b.until_offset and b.from_offset < a.until_offset


def _touched(tiles: Mapping[TopicPartition, Sequence[Tile]], asked: OffsetRange) -> list[Tile]:
    return [tile for tile in tiles.get(asked.partition, ()) if overlap(tile.range, asked)]


def _widen(asked: OffsetRange, touched: Sequence[Tile]) -> OffsetRange:
    return replace(
        asked,
        from_offset=min([asked.from_offset, *(t.range.from_offset for t in touched)]),
        until_offset=max([asked.until_offset, *(t.range.until_offset for t in touched)]),
    )


def _why_refused(
    asked: OffsetRange, touched: Sequence[Tile], known: KnownTopic | None, kafka: KafkaSnapshot
) -> str | None:
    wide = _widen(asked, touched)
    position = known.positions.get(asked.partition.partition) if known else None
    if known is None or position is None:
        return NEVER_PLANNED
    if asked.until_offset > position.next_offset:
        return (
            f"counted up to {position.next_offset} so far; later offsets are counted by the "
            "schedule"
        )
    loss = position.open_loss
    if loss is not None and loss.cause is LossCause.TRUNCATED and overlap(wide, loss.range):
        return (
            f"{loss.range} was truncated: other records may have these offsets, and no operator "
            "has decided about it"
        )
    if folded := [tile for tile in touched if tile.folded]:
        return f"[{folded[0].range.from_offset}, {folded[-1].range.until_offset}) was pruned"
    if cause := why_not_served(wide, known, kafka, was="counted"):
        return (
            f"needs [{wide.from_offset}, {wide.until_offset}), as segments are replaced whole: "
            f"{cause}; what was counted stays"
        )
    return None


def _possible(
    asked: OffsetRange, touched: Sequence[Tile], known: KnownTopic | None, kafka: KafkaSnapshot
) -> Iterator[OffsetRange]:
    """The end of a refused range that Kafka still holds and that was counted, if it is not refused.

    It begins after the segments that Kafka no longer holds whole, and after those that are folded.
    """
    held = kafka.partition(asked.partition)
    position = known.positions.get(asked.partition.partition) if known else None
    if held is None or position is None:
        return
    gone = [
        t.range.until_offset for t in touched if t.folded or t.range.from_offset < held.earliest
    ]
    start = max([asked.from_offset, held.earliest, *gone])
    until = min(asked.until_offset, position.next_offset)
    if start < until:
        rest = replace(asked, from_offset=start, until_offset=until)
        inside = [tile for tile in touched if overlap(tile.range, rest)]
        if _why_refused(rest, inside, known, kafka) is None:
            yield rest


def _cut(
    wide: OffsetRange, touched: Sequence[Tile], limit: int, *, sparse: bool
) -> Iterator[Piece]:
    """The range in pieces of about this many offsets, with segments kept whole."""
    alone = {tile.segment_id for tile in touched if tile.alone}
    batch: list[Piece] = []
    for part in _parts(wide, touched, limit):
        start = batch[0].range.from_offset if batch else part.range.from_offset
        if batch and (
            part.range.until_offset - start > limit
            or not alone.isdisjoint((*part.replaces, *batch[-1].replaces))
            or (sparse and bool(part.replaces) != bool(batch[-1].replaces))
        ):
            yield _join(batch)
            batch = []
        batch.append(part)
    yield _join(batch)


def _parts(wide: OffsetRange, touched: Sequence[Tile], limit: int) -> Iterator[Piece]:
    """A piece for each segment, and pieces of at most ``limit`` offsets for what lies between."""
    at = wide.from_offset
    for tile in touched:
        yield from _never_counted(wide.partition, at, tile.range.from_offset, limit)
        yield Piece(range=tile.range, replaces=(tile.segment_id,))
        at = tile.range.until_offset
    yield from _never_counted(wide.partition, at, wide.until_offset, limit)


def _never_counted(partition: TopicPartition, start: int, end: int, limit: int) -> Iterator[Piece]:
    for at in range(start, end, limit):
        until = min(end, at + limit)
        part = OffsetRange(partition=partition, from_offset=at, until_offset=until)
        yield Piece(range=part, never_counted=part.offsets)


def _join(parts: Sequence[Piece]) -> Piece:
    return Piece(
        range=replace(parts[0].range, until_offset=parts[-1].range.until_offset),
        replaces=tuple(i for part in parts for i in part.replaces),
        never_counted=sum(part.never_counted for part in parts),
    )


def _rounds(pieces: Mapping[TopicPartition, Sequence[Piece]]) -> Iterator[tuple[Piece, ...]]:
    """Groups of pieces that one batch can hold: at most one of each partition."""
    for of_round in zip_longest(*(of_partition for _, of_partition in sorted(pieces.items()))):
        yield tuple(piece for piece in of_round if piece is not None)
