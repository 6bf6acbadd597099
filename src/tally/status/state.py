"""What is known of a pipeline at one moment: the ledger's side, Kafka's, and its surroundings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.errors import ConfigError, SchemaError
from tally.kafka.client import Kafka
from tally.ledger.batches import find_open_ingest
from tally.ledger.decisions import LossRecord, find_losses
from tally.ledger.line_sets import NOTHING_UNSHOWN, Unshown, check_lines, unshown
from tally.ledger.positions import known_topics
from tally.ledger.records import BatchRecord, batch_record, last_committed
from tally.ledger.rules import (
    NOTHING_READ,
    Understood,
    alternating,
    first_recent,
    recently_understood,
    records_committed_since,
)
from tally.ledger.tables import check_prepared, tables_to_read
from tally.model import (
    KafkaSnapshot,
    KnownTopic,
    LossCause,
    PartitionSnapshot,
    TopicPartition,
)
from tally.mysql.transactions import Transaction
from tally.planning.blocks import OTHER_RECORDS, Block, before_a_plan
from tally.planning.ingest import plan_ingest
from tally.set_up.format_trial import newest_levels
from tally.status.surroundings import UNKNOWN, Surroundings
from tally.views import ErrorView

RATE_OVER: Final = timedelta(minutes=15)
"""The time before now over which the rate is taken."""
PLAN_GRACE_S: Final = 60
"""Seconds from a start of the schedule after which its batch is planned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerState:
    """What the ledger holds about a pipeline, in one snapshot."""

    known: Mapping[str, KnownTopic]
    """Its topics, by name."""
    open_batches: tuple[BatchRecord, ...] = ()
    """The minute batches that are planned and not committed: at most one, or one of each
    partition."""
    planned_until: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the open batch of a partition ends."""
    last: BatchRecord | None = None
    """The minute batch that was committed last."""
    losses: tuple[LossRecord, ...] = ()
    """Lost ranges that wait for a decision."""
    understood: Understood = NOTHING_READ
    """What the latest batches under today's rules have read."""
    alternating: tuple[str, ...] = ()
    """Who has counted the latest batches, where these follow two rules in turn."""
    unshown: Unshown = NOTHING_UNSHOWN
    """What is committed, and not shown to readers of its lines."""
    unprepared: ErrorView | None = None
    """Why its tables do not hold what the configuration counts; None when they do."""
    recent_records: int = 0
    """Records that were committed in the time over which the rate is taken."""

    @classmethod
    def read(cls, tx: Transaction, of: Pipeline, now: datetime) -> Self:
        """The state now."""
        pipeline = of.name
        recent = first_recent(tx, pipeline)
        planned = find_open_ingest(tx, pipeline)
        return cls(
            known=known_topics(tx, pipeline),
            open_batches=tuple(batch_record(tx, batch.batch_id) for batch in planned),
            planned_until={
                segment.range.partition: segment.range.until_offset
                for batch in planned
                for segment in batch.segments
            },
            last=last_committed(tx, pipeline),
            losses=tuple(find_losses(tx, pipeline, only_open=True)),
            understood=recently_understood(tx, pipeline, fingerprint(of), recent),
            alternating=alternating(tx, pipeline, recent),
            unshown=unshown(tx, pipeline),
            unprepared=_why_unprepared(tx, of),
            recent_records=records_committed_since(tx, pipeline, now - RATE_OVER),
        )

    @property
    def last_planned_at(self) -> datetime | None:
        """When the newest minute batch was planned; None before the first one."""
        newest = (*self.open_batches, *([self.last] if self.last else []))
        return max((batch.planned_at for batch in newest), default=None)


def _why_unprepared(tx: Transaction, pipeline: Pipeline) -> ErrorView | None:
    try:
        check_lines(tx, tables_to_read(tx, pipeline), pipeline)
        check_prepared(tx, pipeline)
    except (ConfigError, SchemaError) as error:
        return ErrorView.of(error)
    return None


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
    def readable(self) -> "Waits":
        """Those of them that can be read."""
        return self._replace(end=self.readable_end)


_Offsets = Mapping[TopicPartition, int | None]


@dataclass(frozen=True, kw_only=True)
class PipelineState:
    """What is known of a pipeline, and what follows from it."""

    pipeline: Pipeline
    """The pipeline."""
    now: datetime
    """The time, with its zone."""
    ledger: LedgerState
    """The ledger's side."""
    kafka: KafkaSnapshot | None = None
    """The state of Kafka; None when it was not asked or did not answer."""
    kafka_error: ErrorView | None = None
    """Why Kafka did not answer; None when it has, or was not asked."""
    due_until: _Offsets = field(default_factory=dict)
    """By the timestamps of records, the first offset that is not due, of partitions that wait; None
    when all are."""
    overdue_until: _Offsets = field(default_factory=dict)
    """The same of what is overdue, of partitions in which something is due."""
    are_ahead: bool = False
    """Whether some are due only because they have timestamps of the future, which say no age, and
    nothing was planned lately."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """Levels of some of the newest records, where no line was counted yet, and how many have
    each."""
    surroundings: Surroundings = UNKNOWN
    """What is known of Airflow and of the engine."""

    def ask(self, port: Kafka) -> "PipelineState":
        """The same with what Kafka says, as far as it is needed.

        Raises:
            TallyError: Kafka did not answer, or refused.
        """
        pipeline = self.pipeline
        held = port.snapshot(pipeline.topics, read_committed=pipeline.reads_committed)
        found = replace(self, kafka=held)
        is_mute = not self.ledger.understood.has_matched
        levels = newest_levels(port, pipeline, held) if is_mute else {}
        return replace(found, levels=levels, **found.ages(port))

    def ages(self, port: Kafka) -> dict[str, Any]:
        """What Kafka says of the age of what waits, by field."""
        waits, planned_at = self.waits, self.ledger.last_planned_at
        due = dict(port.offsets_at(waits, self.due_before))
        ahead: list[TopicPartition] = []
        if planned_at is not None and planned_at < self.due_before:
            undue = [where for where in waits if not waits[where].before(due[where])]
            # Clocks differ a little; what is not further ahead is due soon by its own timestamp.
            ahead_of = self.now + (self.now - self.due_before)
            until = port.offsets_at(undue, ahead_of) if undue else {}
            ahead = [where for where in undue if not waits[where].before(until[where])]
            due |= dict.fromkeys(ahead)
        late = [where for where in waits if waits[where].before(due[where])]
        overdue = port.offsets_at(late, self.overdue_before) if late else {}
        return {"due_until": due, "overdue_until": overdue, "are_ahead": bool(ahead)}

    @property
    def due_before(self) -> datetime:
        """A batch should have been planned of what Kafka got before, by the schedule."""
        return self.pipeline.due_before(self.now, PLAN_GRACE_S)

    @property
    def overdue_before(self) -> datetime:
        """What Kafka got before should be counted, by the schedule and a batch's patience."""
        return self.pipeline.due_before(self.now, self.pipeline.patience_s)

    @cached_property
    def partitions(self) -> list[TopicPartition]:
        """Every partition that the ledger or Kafka knows, in order."""
        known, held = self.ledger.known, self.kafka.topics if self.kafka else {}
        found = {(topic, n) for topic, entry in known.items() for n in entry.positions}
        for topic in held.keys() & {*self.pipeline.topics, *known}:
            found |= {(topic, n) for n in held[topic].partitions}
        return [TopicPartition(topic=topic, partition=n) for topic, n in sorted(found)]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """What is not read, and why; empty when Kafka did not say what it holds."""
        pipeline, kafka, known = self.pipeline, self.kafka, self.ledger.known
        if kafka is None:
            return ()
        if isinstance(pipeline.start, datetime) and pipeline.start > self.now:
            plan = plan_ingest(pipeline, known=known, kafka=kafka, starts=None)
        else:
            # A new topic that Kafka has cannot be blocked, and it has no start offset here.
            asked = [t for t in pipeline.topics if t in known or t not in kafka.topics]
            asked_of = pipeline.model_copy(update={"topics": asked})
            plan = plan_ingest(asked_of, known=known, kafka=kafka, starts={})
        return before_a_plan(pipeline.name, plan.blocks, known)

    def blocks_of(self, where: TopicPartition) -> Sequence[Block]:
        """Why a partition is not read; empty when it is."""
        return [
            block
            for block in self.blocks
            if block.topic == where.topic and block.partition in {None, where.partition}
        ]

    def held(self, where: TopicPartition) -> PartitionSnapshot | None:
        """What Kafka holds of a partition; None when it did not say."""
        return self.kafka.partition(where) if self.kafka else None

    def lag(self, where: TopicPartition) -> int | None:
        """Offsets that Kafka holds and that are not counted; None when that is not known.

        Of a topic that was created again, or of another cluster, nothing is counted.
        """
        held = self.held(where)
        if held is None:
            return None
        if any(block.reason in OTHER_RECORDS for block in self.blocks_of(where)):
            return held.written_end - held.earliest
        if where.topic not in self.ledger.known and isinstance(self.pipeline.start, datetime):
            return None
        return held.written_end - self._first(where, held)

    @cached_property
    def waits(self) -> dict[TopicPartition, Waits]:
        """What is to be counted, by partition, of those that are not blocked."""
        found = {
            where: Waits(self._first(where, held), held.written_end, held.end)
            for where in self.partitions
            if (held := self.held(where)) and not self.blocks_of(where)
        }
        return {where: waits for where, waits in found.items() if waits.first < waits.end}

    @property
    def lag_offsets(self) -> int | None:
        """The lag of all that is not blocked; None when Kafka did not say what it holds."""
        if self.kafka is None:
            return None
        return sum(self.lag(p) or 0 for p in self.partitions if not self.blocks_of(p))

    @property
    def due_offsets(self) -> int:
        """How many of the offsets that wait and can be read are due."""
        return _late({where: of.readable for where, of in self.waits.items()}, self.due_until)

    @property
    def overdue_offsets(self) -> int:
        """How many of the offsets that wait are overdue, also behind an open transaction."""
        return _late(self.waits, self.overdue_until)

    @property
    def are_held_up(self) -> bool:
        """Whether open transactions hold up all that is overdue."""
        overdue = [of for w, of in self.waits.items() if _late({w: of}, self.overdue_until)]
        return all(of.first >= of.readable_end for of in overdue)

    def _first(self, where: TopicPartition, held: PartitionSnapshot) -> int:
        """The first offset that waits; the end in a new topic whose start is not known here."""
        topic = self.ledger.known.get(where.topic)
        if topic is None:
            return held.earliest if self.pipeline.start == "earliest" else held.written_end
        position = topic.positions.get(where.partition)
        if position is None:  # of a partition that the topic has gained since all is due
            return held.earliest
        loss = position.open_loss
        is_truncated = loss is not None and loss.cause is LossCause.TRUNCATED
        # Behind a truncation nothing is counted.
        counted = loss.range.from_offset if loss and is_truncated else position.next_offset
        return min(held.written_end, max(counted, held.earliest))


def _late(waits: Mapping[TopicPartition, Waits], until: _Offsets) -> int:
    return sum(of.before(until[where]) for where, of in waits.items() if where in until)
