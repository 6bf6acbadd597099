"""What waits in Kafka to be counted: all of it, and what should have been counted by now."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from tally.config.pipeline import Pipeline
from tally.kafka.client import Kafka
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
    where: TopicPartition,
    known: Mapping[str, KnownTopic],
    held: PartitionSnapshot | None,
    blocks: Sequence[Block],
) -> int | None:
    """Offsets that Kafka holds and that are not counted; None when that is not known.

    Of a topic that was created again, or of another cluster, nothing is counted.

    Args:
        pipeline: The pipeline.
        where: The partition.
        known: The ledger's topics.
        held: What Kafka holds of it; None when Kafka did not say.
        blocks: Why it is not read.
    """
    if held is None:
        return None
    if any(block.reason in OTHER_RECORDS for block in blocks):
        return held.written_end - held.earliest
    if where.topic not in known and isinstance(pipeline.start, datetime):
        return None
    return held.written_end - _first(pipeline, where, known, held)


class Waits(NamedTuple):
    """What of a partition is to be counted."""

    first: int
    """The first offset that is not counted."""
    end: int
    """The first one that is not written."""
    readable_end: int
    """The first one that cannot be read, for an open transaction or as it is not written."""

    def before(self, until: int | None) -> int:
        """How many of them are before an offset; all when None."""
        return max(0, (self.end if until is None else min(until, self.end)) - self.first)

    @property
    def is_held_up(self) -> bool:
        """Whether nothing of it can be read."""
        return self.first >= self.readable_end


def waiting(
    pipeline: Pipeline,
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot,
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, Waits]:
    """Those of the partitions in which something is to be counted."""
    found = {
        where: Waits(_first(pipeline, where, known, held), held.written_end, held.end)
        for where in partitions
        if (held := kafka.partition(where))
    }
    return {where: waits for where, waits in found.items() if waits.first < waits.end}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lateness:
    """Since when what waits in Kafka has waited, by the timestamps of its records."""

    due_before: datetime
    """A batch should have been planned of what Kafka got before."""
    overdue_before: datetime
    """What Kafka got before should have been counted."""
    due_until: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """The first offset that is not due, of partitions that wait; None when all are."""
    overdue_until: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """The same of what is overdue, of partitions in which something is due."""
    are_ahead: bool = False
    """Whether some are due only because they have timestamps of the future, which say no age, and
    nothing was planned lately."""

    def ask(
        self,
        kafka: Kafka,
        waits: Mapping[TopicPartition, Waits],
        now: datetime,
        last_planned_at: datetime | None,
    ) -> "Lateness":
        """The same with what Kafka says of the partitions that wait."""
        due = dict(kafka.offsets_at(waits, self.due_before))
        ahead: list[TopicPartition] = []
        if last_planned_at is not None and last_planned_at < self.due_before:
            undue = [where for where in waits if not waits[where].before(due[where])]
            # Clocks differ a little; what is not further ahead is due soon by its own timestamp.
            ahead_of = now + (now - self.due_before)
            until = kafka.offsets_at(undue, ahead_of) if undue else {}
            ahead = [where for where in undue if not waits[where].before(until[where])]
            due |= dict.fromkeys(ahead)
        late = [where for where in waits if waits[where].before(due[where])]
        overdue = kafka.offsets_at(late, self.overdue_before) if late else {}
        return replace(self, due_until=due, overdue_until=overdue, are_ahead=bool(ahead))

    def due_offsets(self, waits: Mapping[TopicPartition, Waits]) -> int:
        """How many of the offsets that wait and can be read are due."""
        readable = {w: of._replace(end=of.readable_end) for w, of in waits.items()}
        return _late(readable, self.due_until)

    def overdue_offsets(self, waits: Mapping[TopicPartition, Waits]) -> int:
        """How many of the offsets that wait are overdue, also behind an open transaction."""
        return _late(waits, self.overdue_until)

    def are_held_up(self, waits: Mapping[TopicPartition, Waits]) -> bool:
        """Whether open transactions hold up all that is overdue."""
        return all(of.is_held_up for w, of in waits.items() if _late({w: of}, self.overdue_until))


def _late(waits: Mapping[TopicPartition, Waits], until: Mapping[TopicPartition, int | None]) -> int:
    return sum(of.before(until[where]) for where, of in waits.items() if where in until)


def _first(
    pipeline: Pipeline,
    where: TopicPartition,
    known: Mapping[str, KnownTopic],
    held: PartitionSnapshot,
) -> int:
    """The first offset that waits; the end in a new topic whose start is not known here."""
    topic = known.get(where.topic)
    if topic is None:
        return held.earliest if pipeline.start == "earliest" else held.written_end
    position = topic.positions.get(where.partition)
    # Of a partition that the topic has gained since all is due.
    return held.earliest if position is None else _uncounted_from(position, held)


def _uncounted_from(position: Position, held: PartitionSnapshot) -> int:
    """The first offset that waits; behind a truncation nothing is counted."""
    loss = position.open_loss
    is_truncated = loss is not None and loss.cause is LossCause.TRUNCATED
    counted = loss.range.from_offset if loss and is_truncated else position.next_offset
    return min(held.written_end, max(counted, held.earliest))
