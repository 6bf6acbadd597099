"""What is known of a pipeline at one moment: the ledger's side, Kafka's, and its surroundings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Self

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.context import Transaction
from tally.errors import ConfigError, SchemaError
from tally.kafka.client import Kafka
from tally.ledger import rules, tables
from tally.ledger.alerts import Alert, alerts_of
from tally.ledger.batches import find_open_ingest
from tally.ledger.decisions import LossRecord, find_losses
from tally.ledger.line_sets import Unshown, check_lines, unshown
from tally.ledger.positions import known_topics
from tally.ledger.progress import Progress, progress_of
from tally.ledger.records import BatchRecord, last_committed, open_batches
from tally.ledger.results import CompleteMinute, last_complete_minute
from tally.model import KafkaSnapshot, KnownTopic, LossCause, OffsetRange, TopicPartition
from tally.planning.blocks import OTHER_RECORDS, Block, BlockReason, before_a_plan
from tally.planning.ingest import plan_ingest
from tally.set_up.format_trial import newest_levels
from tally.status.surroundings import UNKNOWN, Surroundings
from tally.views import ErrorView

RATE_OVER: Final = timedelta(minutes=15)
"""The time before now over which the rate is taken."""
PLAN_GRACE_S: Final = 60
"""Seconds from a start of the schedule after which its batch is planned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionStatus:
    """One partition, as the ledger and Kafka see it."""

    partition: TopicPartition
    """The partition."""
    topic_id: str | None
    """The topic's id in the ledger; null when the ledger does not know it yet."""
    start_offset: int | None
    """Where counting began; null when the ledger does not know the partition yet."""
    next_offset: int | None
    """The committed offset, which is the first one not counted; null for a new partition."""
    planned_until: int | None
    """Where the open batch ends; null when it does not read the partition."""
    kafka_earliest: int | None
    """The first offset that Kafka holds; null when Kafka did not say."""
    kafka_end: int | None
    """The first offset that cannot be read yet; null when Kafka did not say."""
    lag_offsets: int | None
    """Offsets that Kafka holds and that are not counted; of a topic that was created again, all."""
    unstable_offsets: int | None
    """Those from ``kafka_end`` on, held up by an open transaction; null when Kafka did not say."""
    open_loss: OffsetRange | None
    """The lost range that waits for a decision; null when there is none."""
    blocked: BlockReason | None
    """Why it is not read; null when it is."""

    @property
    def first_waiting(self) -> int | None:
        """The first offset that Kafka holds and that is not counted; None when not known."""
        if self.kafka_end is None or self.lag_offsets is None:
            return None
        return self.kafka_end + (self.unstable_offsets or 0) - self.lag_offsets

    def waiting(self, until: int | None = None, *, readable: bool = False) -> int:
        """Offsets that are to be counted; none of a partition that is blocked.

        Args:
            until: Only those before this one; all when None.
            readable: Only those that can be read, as no open transaction holds them up.
        """
        first = self.first_waiting
        if first is None or self.kafka_end is None or self.blocked is not None:
            return 0
        end = self.kafka_end if readable else first + (self.lag_offsets or 0)
        return max(0, (end if until is None else min(until, end)) - first)

    @property
    def planned_offsets(self) -> int:
        """Offsets that are planned and not counted yet."""
        if self.planned_until is None or self.next_offset is None:
            return 0
        return self.planned_until - self.next_offset

    @property
    def condition(self) -> str:
        """The partition's status in a few words."""
        if self.blocked is not None:
            return f"blocked: {self.blocked}"
        if self.open_loss is not None:
            return f"open loss {self.open_loss.span}"
        if self.kafka_end is None:
            return "unknown"
        return "new" if self.next_offset is None else "ok"


_Offsets = Mapping[TopicPartition, int | None]


@dataclass(frozen=True, kw_only=True)
class PipelineState:
    """What is known of a pipeline, and what follows from it.

    Without Kafka's answer it is one snapshot of the ledger.
    """

    pipeline: Pipeline
    """The pipeline."""
    now: datetime
    """The time, with its zone."""
    known: Mapping[str, KnownTopic]
    """Its topics, by name, as the ledger knows them."""
    open_batches: tuple[BatchRecord, ...] = ()
    """The minute batches that are planned: at most one, or one of each partition."""
    planned_until: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where the open batch of a partition ends."""
    last_committed_batch: BatchRecord | None = None
    """The minute batch that was committed last."""
    open_losses: tuple[LossRecord, ...] = ()
    """Lost ranges that wait for a decision."""
    understood: rules.Understood = field(default_factory=rules.Understood)
    """What the latest batches under today's rules have read."""
    alternating: tuple[str, ...] = ()
    """Who has counted the latest batches, where these follow two rules in turn."""
    progress: Progress = field(default_factory=Progress)
    """How far it has counted, in time."""
    complete_minute: CompleteMinute | None = None
    """The last complete minute; None before the first one, and where the tables are not right."""
    alerts: tuple[Alert, ...] = ()
    """Of each limit that was ever broken the last alert."""
    unshown: Unshown = field(default_factory=Unshown)
    """What is committed, and not shown to readers of its lines."""
    unprepared: ErrorView | None = None
    """Why its tables do not hold what the configuration counts; None when they do."""
    recent_records: int = 0
    """Records that were committed in the time over which the rate is taken."""
    kafka: KafkaSnapshot | None = None
    """The state of Kafka; None when it was not asked or did not answer."""
    kafka_error: ErrorView | None = None
    """Why Kafka did not answer; None when it has, or was not asked."""
    due_until: _Offsets = field(default_factory=dict)
    """By records' timestamps the first offset not due, of partitions that wait; None if all are."""
    overdue_until: _Offsets = field(default_factory=dict)
    """The same of what is overdue, of partitions in which something is due."""
    are_ahead: bool = False
    """Whether some are due only because they have timestamps of the future, which say no age, and
    nothing was planned lately."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """Where no line was counted yet: levels of some of the newest records, how many have each."""
    surroundings: Surroundings = UNKNOWN
    """What is known of Airflow and of the engine."""

    @classmethod
    def read(
        cls, tx: Transaction, pipeline: Pipeline, now: datetime, surroundings: Surroundings
    ) -> Self:
        """The ledger's side."""
        name = pipeline.name
        recent = rules.first_recent(tx, name)
        opened = tuple(open_batches(tx, name))
        planned = find_open_ingest(tx, name) if opened else ()
        own, unprepared = _own_tables(tx, pipeline)
        progress = progress_of(tx, name)
        complete: CompleteMinute | None = None
        if progress.complete_before is not None and own is not None:
            complete = last_complete_minute(tx, own, progress.complete_before)
        return cls(
            pipeline=pipeline,
            now=now,
            known=known_topics(tx, name),
            open_batches=opened,
            planned_until={
                segment.range.partition: segment.range.until_offset
                for batch in planned
                for segment in batch.segments
            },
            last_committed_batch=last_committed(tx, name),
            open_losses=tuple(find_losses(tx, name, only_open=True)),
            understood=rules.recently_understood(tx, name, fingerprint(pipeline), recent),
            alternating=rules.alternating(tx, name, recent),
            progress=progress,
            complete_minute=complete,
            alerts=tuple(alerts_of(tx, name)),
            unshown=unshown(tx, name),
            unprepared=unprepared,
            recent_records=rules.records_committed_since(tx, name, now - RATE_OVER),
            surroundings=surroundings,
        )

    def ask(self, port: Kafka) -> "PipelineState":
        """The same with what Kafka says, as far as it is needed.

        Raises:
            TallyError: Kafka did not answer, or refused.
        """
        pipeline = self.pipeline
        held = port.snapshot(pipeline.topics, read_committed=pipeline.reads_committed)
        found = replace(self, kafka=held)
        is_mute = not self.understood.has_matched
        levels = newest_levels(port, pipeline, held) if is_mute else {}
        newest = (*self.open_batches, *filter(None, [self.last_committed_batch]))
        planned_at = max((batch.planned_at for batch in newest), default=None)
        waits = found.waits
        due = dict(port.offsets_at(waits, self.due_before))
        ahead: list[TopicPartition] = []
        if planned_at is not None and planned_at < self.due_before:
            undue = [where for where in waits if not waits[where].waiting(due[where])]
            # Clocks differ a little; what is not further ahead is due soon by its own timestamp.
            ahead_of = self.now + (self.now - self.due_before)
            until = port.offsets_at(undue, ahead_of) if undue else {}
            ahead = [where for where in undue if not waits[where].waiting(until[where])]
            due |= dict.fromkeys(ahead)
        late = [where for where in waits if waits[where].waiting(due[where])]
        overdue = port.offsets_at(late, self.overdue_before) if late else {}
        return replace(
            found, levels=levels, due_until=due, overdue_until=overdue, are_ahead=bool(ahead)
        )

    @property
    def due_before(self) -> datetime:
        """A batch should have been planned of what Kafka got before, by the schedule."""
        return self.pipeline.due_before(self.now, PLAN_GRACE_S)

    @property
    def overdue_before(self) -> datetime:
        """What Kafka got before should be counted, by the schedule and a batch's patience."""
        return self.pipeline.due_before(self.now, self.pipeline.patience_s)

    @cached_property
    def partitions(self) -> tuple[PartitionStatus, ...]:
        """Every partition that the ledger or Kafka knows, in order."""
        known, held = self.known, self.kafka.topics if self.kafka else {}
        found = {(topic, n) for topic, entry in known.items() for n in entry.positions}
        for topic in held.keys() & {*self.pipeline.topics, *known}:
            found |= {(topic, n) for n in held[topic].partitions}
        return tuple(
            self._partition(TopicPartition(topic=topic, partition=n)) for topic, n in sorted(found)
        )

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """What is not read, and why; empty when Kafka did not say what it holds."""
        pipeline, kafka, known = self.pipeline, self.kafka, self.known
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

    @cached_property
    def waits(self) -> dict[TopicPartition, PartitionStatus]:
        """The partitions in which something is to be counted, and can be planned."""
        return {one.partition: one for one in self.partitions if one.waiting()}

    @property
    def lag_offsets(self) -> int | None:
        """The lag of all that is not blocked; None when Kafka did not say what it holds."""
        if self.kafka is None:
            return None
        return sum(one.waiting() for one in self.partitions)

    @property
    def due_offsets(self) -> int:
        """How many of the offsets that wait and can be read are due."""
        until = self.due_until
        return sum(p.waiting(until[w], readable=True) for w, p in self.waits.items() if w in until)

    @cached_property
    def overdue(self) -> dict[TopicPartition, int]:
        """How many of the offsets that wait are overdue, also behind an open transaction."""
        until = self.overdue_until
        found = {w: p.waiting(until[w]) for w, p in self.waits.items() if w in until}
        return {where: offsets for where, offsets in found.items() if offsets}

    @property
    def are_held_up(self) -> bool:
        """Whether open transactions hold up all that is overdue."""
        return not any(self.waits[where].waiting(readable=True) for where in self.overdue)

    @cached_property
    def _reasons(self) -> dict[str, BlockReason]:
        return {block.place: block.reason for block in self.blocks}

    def _partition(self, where: TopicPartition) -> PartitionStatus:
        topic = self.known.get(where.topic)
        position = topic.positions.get(where.partition) if topic else None
        loss = position.open_loss if position else None
        held = self.kafka.partition(where) if self.kafka else None
        blocked = self._reasons.get(where.topic) or self._reasons.get(str(where))
        # Of a topic that was created again, or of another cluster, nothing is counted.
        is_other = blocked in OTHER_RECORDS
        first = held.earliest if held and is_other else self._first(where)
        return PartitionStatus(
            partition=where,
            topic_id=topic.topic_id if topic else None,
            start_offset=position.start_offset if position else None,
            next_offset=position.next_offset if position else None,
            planned_until=self.planned_until.get(where),
            kafka_earliest=held.earliest if held else None,
            kafka_end=held.end if held else None,
            lag_offsets=held.written_end - first if held and first is not None else None,
            unstable_offsets=held.unstable if held else None,
            open_loss=loss.range if loss else None,
            blocked=blocked,
        )

    def _first(self, where: TopicPartition) -> int | None:
        """The first offset that waits; None when it is not known, as for a start at a time."""
        topic, start = self.known.get(where.topic), self.pipeline.start
        held = self.kafka.partition(where) if self.kafka else None
        if held is None or (topic is None and isinstance(start, datetime)):
            return None
        if topic is None:
            return held.earliest if start == "earliest" else held.written_end
        position = topic.positions.get(where.partition)
        if position is None:  # of a partition that the topic has gained since all is due
            return held.earliest
        loss = position.open_loss
        is_truncated = loss is not None and loss.cause is LossCause.TRUNCATED
        # Behind a truncation nothing is counted.
        counted = loss.range.from_offset if loss and is_truncated else position.next_offset
        return min(held.written_end, max(counted, held.earliest))


def _own_tables(
    tx: Transaction, pipeline: Pipeline
) -> tuple[tables.Tables, None] | tuple[None, ErrorView]:
    """The pipeline's tables, or why they are not prepared."""
    try:
        own = tables.tables_to_read(tx, pipeline)
        check_lines(tx, own, pipeline)
        tables.check_listed(tx, own, pipeline.name)
        tables.check_tables(tx, own, pipeline)
    except (ConfigError, SchemaError) as error:
        return None, ErrorView.of(error)
    return own, None
