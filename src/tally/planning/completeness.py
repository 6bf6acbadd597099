"""Which minutes are complete, as follows from what Kafka has shown and what was counted. Pure."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tally.model import KafkaSnapshot, KnownTopic, PartitionSnapshot, Position, TopicPartition
from tally.planning.blocks import Block

MINUTE = timedelta(minutes=1)


def newly_seen(
    known: Mapping[str, KnownTopic], kafka: KafkaSnapshot, blocks: Collection[Block]
) -> Iterator[tuple[TopicPartition, int]]:
    """The ends of partitions that a plan has seen, where those it saw before are counted.

    Every record that had reached Kafka when it was asked lies before the end; with an open
    transaction some of them cannot be read yet. An end that is not counted yet stays what is waited
    for, unless the partition was truncated since. What is blocked shows no end.
    """
    blocked = {(block.topic, block.partition) for block in blocks}
    for topic, snapshot in kafka.topics.items():
        of = known.get(topic)
        for number, held in snapshot.partitions.items():
            if blocked & {(topic, None), (topic, number)}:
                continue
            position = of.positions.get(number) if of else None
            if position is None or not _is_awaited(position, held):
                yield TopicPartition(topic=topic, partition=number), held.written_end


def _is_awaited(position: Position, held: PartitionSnapshot) -> bool:
    awaited = position.seen_end
    return awaited is not None and position.next_offset < awaited <= held.written_end


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
