"""Which minutes are complete, as follows from what Kafka has shown and what was counted. Pure."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tally.model import KafkaSnapshot, KnownTopic, PartitionSnapshot, Position, TopicPartition
from tally.planning.blocks import Block

MINUTE = timedelta(minutes=1)


Topics = Mapping[str, KnownTopic]


def newly_seen(
    known: Topics, kafka: KafkaSnapshot, blocks: Collection[Block]
) -> list[tuple[TopicPartition, int]]:
    """The ends of partitions that a plan has seen, where those it saw before are counted.

    Every record that had reached Kafka when it was asked lies before the end; with an open
    transaction some of them cannot be read yet. An end that is not counted yet stays what is waited
    for, unless the partition was truncated since. What is blocked shows no end.
    """
    return [
        (partition, held.written_end)
        for partition, position, held in _readable(known, kafka, blocks)
        if position is None or not _is_awaited(position, held)
    ]


def has_fallen(known: Topics, kafka: KafkaSnapshot, blocks: Collection[Block]) -> bool:
    """Whether a partition ends before an end that was seen: the answer may be an old one."""
    return any(
        position is not None and held.written_end < (position.seen_end or 0)
        for _, position, held in _readable(known, kafka, blocks)
    )


def _readable(
    known: Topics, kafka: KafkaSnapshot, blocks: Collection[Block]
) -> Iterator[tuple[TopicPartition, Position | None, PartitionSnapshot]]:
    blocked = {(block.topic, block.partition) for block in blocks}
    for topic, snapshot in kafka.topics.items():
        of = known.get(topic)
        for number, held in snapshot.partitions.items():
            if not blocked & {(topic, None), (topic, number)}:
                position = of.positions.get(number) if of else None
                yield TopicPartition(topic=topic, partition=number), position, held


def _is_awaited(position: Position, held: PartitionSnapshot) -> bool:
    awaited = position.seen_end
    return awaited is not None and position.next_offset < awaited <= held.written_end


def is_shown(moment: datetime, zone: str) -> bool:
    """Whether a clock of the zone ever shows a minute; not where it is set forward over it."""
    clock = ZoneInfo(zone)
    there = moment.replace(tzinfo=clock)
    return there.astimezone(UTC).astimezone(clock).replace(tzinfo=None) == moment


def complete_before(counted_through: datetime, lateness: timedelta, zone: str) -> datetime:
    """The first minute that is still open, on the wall clock of the lines.

    A minute is complete when it has ended, for the last time where the clock is set back, longer
    than the lateness before the moment by which all is counted.

    Args:
        counted_through: That moment, with its zone.
        lateness: How long after its own time a line may reach Kafka.
        zone: IANA name of the zone in which the lines' clock is read.
    """
    clock = ZoneInfo(zone)
    until = counted_through - lateness
    first = until.astimezone(clock).replace(second=0, microsecond=0, tzinfo=None)
    # The last instant of a wall clock's minute: of two where the clock is set back.
    while (first - MINUTE).replace(tzinfo=clock, fold=1).astimezone(UTC) + MINUTE > until:
        first -= MINUTE
    return first
