"""The status of a pipeline: the ledger's positions and what Kafka holds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tally.app.format_trial import newest_levels
from tally.app.health import (
    UNKNOWN,
    Findings,
    Health,
    Problem,
    Surroundings,
    problems_of,
    worst_of,
)
from tally.app.lag import Lateness, lag, waiting
from tally.app.ledger_state import LedgerState
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.errors import TallyError
from tally.ledger.records import BatchRecord
from tally.ledger.rules import Understood, records_committed_since
from tally.losses.losses import LossView
from tally.model import KafkaSnapshot, KnownTopic, TopicPartition
from tally.planning.blocks import Block, BlockReason, before_a_plan
from tally.planning.ingest import plan_ingest
from tally.views import ErrorView, RangeView

RATE_OVER: Final = timedelta(minutes=15)
"""The time before now over which the rate is taken."""
PLAN_GRACE_S: Final = 60
"""Seconds from a start of the schedule after which its batch is planned."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusRequest:
    """Which pipeline to show."""

    pipeline: str
    """The pipeline."""
    ask_kafka: bool = True
    """Whether Kafka is asked as well; if not, only the ledger's side is filled in."""
    kafka_error: ErrorView | None = None
    """Why Kafka does not answer, when that is known already: then it is not asked."""
    surroundings: Surroundings = UNKNOWN
    """What is known of Airflow and of the engine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionStatus:
    """One partition, as the ledger and Kafka see it."""

    topic: str
    """The topic."""
    partition: int
    """The partition's number."""
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
    """Those from ``kafka_end`` on, which an open transaction holds up; null when Kafka did not
    say."""
    open_loss: RangeView | None
    """The lost range that waits for a decision; null when there is none."""
    blocked: BlockReason | None
    """Why it is not read; null when it is."""

    @property
    def place(self) -> str:
        """``alog/0``."""
        return f"{self.topic}/{self.partition}"

    @property
    def where(self) -> TopicPartition:
        """The partition itself."""
        return TopicPartition(topic=self.topic, partition=self.partition)

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


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusView:
    """The status of a pipeline."""

    pipeline: str
    """The pipeline."""
    result_table: str
    """The table it counts into."""
    health: Health
    """Its health: that of the worst problem, or ``unknown`` until Kafka has answered."""
    problems: tuple[Problem, ...]
    """What is wrong, failures first; empty when nothing is."""
    lag_offsets: int | None
    """Offsets of all partitions that are not counted; null when Kafka did not answer."""
    understood: Understood
    """What the latest batches under today's rules have read."""
    records_per_second: float
    """Committed by minute batches, on average over the last 15 minutes."""
    kafka_answered: bool
    """Whether Kafka has answered."""
    kafka_error: ErrorView | None
    """Why it has not answered; null when it has, or was not asked."""
    cluster_id: str | None
    """Kafka's id; null when it did not answer."""
    partitions: tuple[PartitionStatus, ...]
    """Every partition that the ledger or Kafka knows, in order."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""
    open_losses: tuple[LossView, ...]
    """Lost ranges that wait for a decision, oldest first."""
    open_batches: tuple[BatchRecord, ...]
    """The planned minute batches: at most one, or by partition one of each."""
    last_committed_batch: BatchRecord | None
    """The minute batch that was committed last."""


def status(
    ctx: Context,
    request: StatusRequest,
    *,
    on_unanswered: Callable[[TallyError], None] = lambda _: None,
) -> StatusView:
    """The status of a pipeline; the ledger's side is one snapshot.

    When Kafka does not answer, the view says so and has the ledger's side all the same.

    Args:
        ctx: What is needed from outside.
        request: Which pipeline to show.
        on_unanswered: Called with the error when Kafka did not answer, or refused; it may give the
            error a better next step.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        MySQLUnavailableError: The server did not answer.
        OperatorError: The ledger is not migrated or access is denied.
    """
    pipeline = ctx.settings.pipeline(request.pipeline)
    now = ctx.clock.now()
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        ledger = LedgerState.read(tx, pipeline)
        recent = records_committed_since(tx, pipeline.name, now - RATE_OVER)
    kafka, error = None, request.kafka_error
    lateness = Lateness(
        due_before=pipeline.due_before(now, PLAN_GRACE_S),
        overdue_before=pipeline.due_before(now, pipeline.patience_s),
    )
    levels: Mapping[str, int] = {}
    if request.ask_kafka and error is None:
        try:
            kafka = ctx.kafka.snapshot(pipeline.topics, read_committed=pipeline.reads_committed)
            where = _partitions(pipeline, ledger.known, kafka)
            waits = waiting(pipeline, ledger.known, kafka, where)
            lateness = lateness.ask(ctx.kafka, waits, now, ledger.last_planned_at)
            if not ledger.understood.has_matched:
                levels = newest_levels(ctx.kafka, pipeline, kafka)
        except TallyError as unanswered:
            on_unanswered(unanswered)
            error, kafka = ErrorView.of(unanswered), None
    facts = Facts(
        kafka=kafka,
        kafka_error=error,
        now=now,
        recent_records=recent,
        lateness=lateness,
        levels=levels,
        surroundings=request.surroundings,
    )
    return compose(pipeline, ledger, facts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a pipeline besides the ledger."""

    now: datetime
    """The time, with its zone."""
    lateness: Lateness
    """Since when what waits in Kafka has waited."""
    recent_records: int = 0
    """Records that were committed in the time over which the rate is taken."""
    kafka: KafkaSnapshot | None = None
    """The state of Kafka; None when it was not asked or did not answer."""
    kafka_error: ErrorView | None = None
    """Why Kafka did not answer; None when it has, or was not asked."""
    levels: Mapping[str, int] = field(default_factory=dict)
    """Levels of some of the newest records, where no line was counted yet."""
    surroundings: Surroundings = UNKNOWN
    """What is known of Airflow and of the engine."""


def compose(pipeline: Pipeline, ledger: LedgerState, facts: Facts) -> StatusView:
    """The status of a pipeline, from the state of the ledger and of Kafka."""
    kafka, error = facts.kafka, facts.kafka_error
    blocks = _blocks(pipeline, ledger.known, kafka, facts.now)
    partitions = tuple(
        _partition(pipeline, where, ledger, kafka, blocks)
        for where in _partitions(pipeline, ledger.known, kafka)
    )
    total = sum(p.lag_offsets or 0 for p in partitions) if kafka else None
    readable = [p for p in partitions if p.blocked is None]

    waits = waiting(pipeline, ledger.known, kafka, [p.where for p in readable]) if kafka else {}
    found = Findings(
        kafka_error=error,
        blocks=blocks,
        unprepared=ledger.unprepared,
        open_losses=ledger.losses,
        lag_offsets=sum(p.lag_offsets or 0 for p in readable) if kafka else None,
        due_offsets=facts.lateness.due_offsets(waits),
        due_before=facts.lateness.due_before,
        overdue_offsets=facts.lateness.overdue_offsets(waits),
        overdue_before=facts.lateness.overdue_before,
        are_ahead=facts.lateness.are_ahead,
        are_held_up=facts.lateness.are_held_up(waits),
        open_batches=ledger.open_records,
        understood=ledger.understood,
        alternating=ledger.alternating,
        levels=facts.levels,
        unshown=ledger.unshown,
        surroundings=facts.surroundings,
    )
    problems = tuple(problems_of(pipeline, found))
    unknown = [] if kafka else [Health.UNKNOWN]
    return StatusView(
        pipeline=pipeline.name,
        result_table=pipeline.table,
        health=worst_of([*(p.health for p in problems), *unknown]),
        problems=problems,
        lag_offsets=total,
        understood=ledger.understood,
        records_per_second=round(facts.recent_records / RATE_OVER.total_seconds(), 2),
        kafka_answered=kafka is not None,
        kafka_error=error,
        cluster_id=kafka.cluster_id if kafka else None,
        partitions=partitions,
        blocks=blocks,
        open_losses=ledger.losses,
        open_batches=ledger.open_records,
        last_committed_batch=ledger.last,
    )


def _blocks(
    pipeline: Pipeline,
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot | None,
    now: datetime,
) -> tuple[Block, ...]:
    if kafka is None:
        return ()
    if isinstance(pipeline.start, datetime) and pipeline.start > now:
        plan = plan_ingest(pipeline, known=known, kafka=kafka, starts=None)
    else:
        # A new topic that Kafka has cannot be blocked, and it has no start offset here.
        asked = [t for t in pipeline.topics if t in known or t not in kafka.topics]
        asked_of = pipeline.model_copy(update={"topics": asked})
        plan = plan_ingest(asked_of, known=known, kafka=kafka, starts={})
    return before_a_plan(pipeline.name, plan.blocks, known)


def _partitions(
    pipeline: Pipeline, known: Mapping[str, KnownTopic], kafka: KafkaSnapshot | None
) -> list[TopicPartition]:
    """Every partition that the ledger or Kafka knows, in order."""
    counted = {(topic, n) for topic, entry in known.items() for n in entry.positions}
    held = {
        (topic, n)
        for topic in {*pipeline.topics, *known}
        if kafka and topic in kafka.topics
        for n in kafka.topics[topic].partitions
    }
    return [TopicPartition(topic=topic, partition=n) for topic, n in sorted(counted | held)]


def _partition(
    pipeline: Pipeline,
    where: TopicPartition,
    ledger: LedgerState,
    kafka: KafkaSnapshot | None,
    blocks: Sequence[Block],
) -> PartitionStatus:
    topic = ledger.known.get(where.topic)
    position = topic.positions.get(where.partition) if topic else None
    held = kafka.partition(where) if kafka else None
    loss = position.open_loss if position else None
    covers = [
        b for b in blocks if b.topic == where.topic and b.partition in {None, where.partition}
    ]
    return PartitionStatus(
        topic=where.topic,
        partition=where.partition,
        topic_id=topic.topic_id if topic else None,
        start_offset=position.start_offset if position else None,
        next_offset=position.next_offset if position else None,
        planned_until=ledger.planned_until(where),
        kafka_earliest=held.earliest if held else None,
        kafka_end=held.end if held else None,
        lag_offsets=lag(pipeline, where, ledger.known, held, covers),
        unstable_offsets=held.unstable if held else None,
        open_loss=RangeView.of(loss.range) if loss else None,
        blocked=covers[0].reason if covers else None,
    )
