"""The status of pipelines: the ledger's positions, what Kafka holds, and since when it waits."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tally.context import Context
from tally.each import is_down
from tally.errors import TallyError
from tally.kafka.client import Kafka
from tally.ledger.alerts import Alert
from tally.ledger.decisions import LossRecord
from tally.ledger.records import BatchRecord
from tally.ledger.results import CompleteMinute
from tally.ledger.rules import Understood
from tally.model import TopicPartition
from tally.planning.blocks import Block
from tally.status.growth import GrowthView
from tally.status.health import (
    Health,
    Problem,
    problems_of,
    worst_of,
)
from tally.status.state import RATE_OVER, PartitionStatus, PipelineState
from tally.status.surroundings import UNKNOWN, Surroundings
from tally.views import ErrorView, view_of


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
    counted_through: datetime | None
    """All is counted that Kafka had at this moment; null while that is not known of a partition."""
    complete_before: str | None
    """The first minute that is not complete, `YYYY-MM-DD HH:MM:00` on the lines' own clock; null
    before the first one is."""
    complete_minute: CompleteMinute | None
    """The last complete minute; null before the first one, and where tables are not prepared."""
    alerts: tuple[Alert, ...]
    """Of each limit of complete minutes that was ever broken, the last alert."""
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
    growth: GrowthView | None
    """How MySQL's tables grow with it; null when that was not asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingPartition:
    """The oldest record of a partition that is not counted."""

    written_at: datetime | None
    """Its timestamp, as Kafka has it; null when Kafka did not say in time."""
    expires_at: datetime | None
    """When retention may take it, at the earliest; null when kept by size alone, or not known."""

    def retention_left(self, now: datetime) -> float | None:
        """The share of its retention that is left: 1 when written, 0 when it may go, or less."""
        written, expires = self.written_at, self.expires_at
        if written is None or expires is None or expires <= written:
            return None
        return (expires - now) / (expires - written)


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingView:
    """The status of a pipeline with what Kafka says, and how old what waits is."""

    asked_at: datetime
    """When Kafka was asked."""
    status: StatusView
    """The status."""
    oldest: Mapping[TopicPartition, WaitingPartition]
    """The oldest uncounted record of each partition that has one; in order."""
    times_error: ErrorView | None
    """Why the times of some of them are not known; null when Kafka has answered."""

    @property
    def oldest_at(self) -> datetime | None:
        """The timestamp of the oldest record that waits; None without one, or when not known."""
        written = (one.written_at for one in self.oldest.values())
        return min((at for at in written if at is not None), default=None)

    @property
    def retention_left(self) -> float | None:
        """The smallest share of its retention that a record has left; None where none is known."""
        shares = (p.retention_left(self.asked_at) for p in self.oldest.values())
        return min((share for share in shares if share is not None), default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Statuses:
    """Asks for the status of one pipeline after another; a Kafka that is down is asked only once.

    When Kafka does not answer, a view says so and has the ledger's side all the same. Each method
    raises an UnknownPipelineError where no such pipeline is configured, a MySQLUnavailableError
    where the server did not answer, and an OperatorError where the ledger is not migrated or access
    is denied.
    """

    ctx: Context
    """What is needed from outside."""
    ask_kafka: bool = True
    """Whether Kafka is asked as well; if not, only the ledger's side is filled in."""
    surroundings: Surroundings = UNKNOWN
    """What is known of Airflow and of the engine."""
    explain: Callable[[TallyError], None] = lambda _: None
    """Called with an error of Kafka before it is shown; it may give it a better next step."""
    errors: list[TallyError] = field(default_factory=list)
    """Kafka's errors so far; one of a server that is down is there once."""

    def of(self, name: str) -> StatusView:
        """The status of a pipeline; the ledger's side is one snapshot."""
        (state,) = self.read([name])
        return self.asking(state, self.ctx.kafka)

    def read(self, names: Iterable[str]) -> list[PipelineState]:
        """The ledger's side of pipelines, in one snapshot."""
        pipelines = [self.ctx.settings.pipeline(name) for name in names]
        if not pipelines:
            return []
        now = self.ctx.clock.now()
        with self.ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
            return [PipelineState.read(tx, one, now, self.surroundings) for one in pipelines]

    def asking(self, state: PipelineState, kafka: Kafka) -> StatusView:
        """The status with the ledger's side as it was read, asking a client of the cluster."""
        if not self.ask_kafka:
            return status_of(state)
        error = next(filter(is_down, self.errors), None)
        if error is None:
            try:
                return status_of(state.ask(kafka))
            except TallyError as found:
                error = found
                self.explain(error)
                self.errors.append(error)
        return status_of(replace(state, kafka_error=ErrorView.of(error)))

    def waiting(self, name: str) -> WaitingView:
        """The status of a pipeline, and how old what waits is; each answer is waited for so long.

        What Kafka does not say of the times is in the view alone, and no error in ``errors``.
        """
        asked_at = self.ctx.clock.now()
        view = self.of(name)
        first = first_waiting(view)
        error = None
        times: Mapping[TopicPartition, datetime | None] = {}
        kept_for: Mapping[str, timedelta | None] = {}
        try:
            reads_committed = self.ctx.settings.pipeline(name).reads_committed
            found = self.ctx.kafka.records_at(first, read_committed=reads_committed)
            times = {p: some[0].written_at for p, some in found.items() if some}
            kept_for = self.ctx.kafka.retention(sorted({p.topic for p in first}))
        except TallyError as failed:
            error = ErrorView.of(failed)
        oldest = {
            p: WaitingPartition(
                written_at=(at := times.get(p)), expires_at=_expiry(at, kept_for.get(p.topic))
            )
            for p in first
        }
        return WaitingView(asked_at=asked_at, status=view, times_error=error, oldest=oldest)


def first_waiting(view: StatusView) -> Mapping[TopicPartition, int]:
    """The first offset of each partition that is not counted."""
    return {
        p.partition: p.first_waiting
        for p in view.partitions
        if p.lag_offsets and p.first_waiting is not None
    }


def status_of(state: PipelineState) -> StatusView:
    """The status of a pipeline, as it was read."""
    kafka, problems = state.kafka, tuple(problems_of(state))
    unknown = [] if kafka else [Health.UNKNOWN]
    return view_of(
        StatusView,
        state,
        state.progress,
        pipeline=state.pipeline.name,
        result_table=state.pipeline.table,
        health=worst_of([*(p.health for p in problems), *unknown]),
        problems=problems,
        lag_offsets=sum(p.lag_offsets or 0 for p in state.partitions) if kafka else None,
        records_per_second=round(state.recent_records / RATE_OVER.total_seconds(), 2),
        kafka_answered=kafka is not None,
        cluster_id=kafka.cluster_id if kafka else None,
        growth=None,
    )


def _expiry(written_at: datetime | None, kept: timedelta | None) -> datetime | None:
    """When retention may take a record; None when that is not known, or beyond the calendar."""
    if written_at is None or kept is None:
        return None
    try:
        return written_at + kept
    except OverflowError:
        return None
