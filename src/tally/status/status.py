"""The status of a pipeline: the ledger's positions and what Kafka holds."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tally.context import Context
from tally.errors import TallyError
from tally.ledger.decisions import LossRecord
from tally.ledger.records import BatchRecord
from tally.ledger.rules import Understood
from tally.model import OffsetRange, TopicPartition
from tally.planning.blocks import Block, BlockReason
from tally.status.health import Health, Problem, problems_of, worst_of
from tally.status.state import RATE_OVER, LedgerState, PipelineState
from tally.status.surroundings import UNKNOWN, Surroundings
from tally.views import ErrorView


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
    """Those from ``kafka_end`` on, which an open transaction holds up; null when Kafka did not
    say."""
    open_loss: OffsetRange | None
    """The lost range that waits for a decision; null when there is none."""
    blocked: BlockReason | None
    """Why it is not read; null when it is."""

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
    open_losses: tuple[LossRecord, ...]
    """Lost ranges that wait for a decision, oldest first."""
    open_batches: tuple[BatchRecord, ...]
    """The planned minute batches: at most one, or by partition one of each."""
    last_committed_batch: BatchRecord | None
    """The minute batch that was committed last."""


def status(
    ctx: Context,
    name: str,
    *,
    ask_kafka: bool = True,
    kafka_error: ErrorView | None = None,
    surroundings: Surroundings = UNKNOWN,
    on_unanswered: Callable[[TallyError], None] = lambda _: None,
) -> StatusView:
    """The status of a pipeline; the ledger's side is one snapshot.

    When Kafka does not answer, the view says so and has the ledger's side all the same.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        ask_kafka: Whether Kafka is asked as well; if not, only the ledger's side is filled in.
        kafka_error: Why Kafka does not answer, when that is known already: then it is not asked.
        surroundings: What is known of Airflow and of the engine.
        on_unanswered: Called with the error when Kafka did not answer, or refused; it may give the
            error a better next step.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        MySQLUnavailableError: The server did not answer.
        OperatorError: The ledger is not migrated or access is denied.
    """
    pipeline = ctx.settings.pipeline(name)
    now = ctx.clock.now()
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        ledger = LedgerState.read(tx, pipeline, now)
    state = PipelineState(pipeline=pipeline, now=now, ledger=ledger, surroundings=surroundings)
    if ask_kafka and kafka_error is None:
        try:
            return status_of(state.ask(ctx.kafka))
        except TallyError as error:
            on_unanswered(error)
            kafka_error = ErrorView.of(error)
    return status_of(replace(state, kafka_error=kafka_error))


def status_of(state: PipelineState) -> StatusView:
    """The status of a pipeline, as it was read."""
    kafka, ledger = state.kafka, state.ledger
    partitions = tuple(_partition(state, where) for where in state.partitions)
    problems = tuple(problems_of(state))
    unknown = [] if kafka else [Health.UNKNOWN]
    return StatusView(
        pipeline=state.pipeline.name,
        result_table=state.pipeline.table,
        health=worst_of([*(p.health for p in problems), *unknown]),
        problems=problems,
        lag_offsets=sum(p.lag_offsets or 0 for p in partitions) if kafka else None,
        understood=ledger.understood,
        records_per_second=round(ledger.recent_records / RATE_OVER.total_seconds(), 2),
        kafka_answered=kafka is not None,
        kafka_error=state.kafka_error,
        cluster_id=kafka.cluster_id if kafka else None,
        partitions=partitions,
        blocks=state.blocks,
        open_losses=ledger.losses,
        open_batches=ledger.open_batches,
        last_committed_batch=ledger.last,
    )


def _partition(state: PipelineState, where: TopicPartition) -> PartitionStatus:
    topic = state.ledger.known.get(where.topic)
    position = topic.positions.get(where.partition) if topic else None
    held, blocks = state.held(where), state.blocks_of(where)
    loss = position.open_loss if position else None
    return PartitionStatus(
        partition=where,
        topic_id=topic.topic_id if topic else None,
        start_offset=position.start_offset if position else None,
        next_offset=position.next_offset if position else None,
        planned_until=state.ledger.planned_until.get(where),
        kafka_earliest=held.earliest if held else None,
        kafka_end=held.end if held else None,
        lag_offsets=state.lag(where),
        unstable_offsets=held.unstable if held else None,
        open_loss=loss.range if loss else None,
        blocked=blocks[0].reason if blocks else None,
    )
