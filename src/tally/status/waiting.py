"""What waits in Kafka: since when, and until when it is kept."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tally.context import Context
from tally.errors import TallyError
from tally.model import TopicPartition
from tally.status.status import StatusView, status
from tally.status.surroundings import UNKNOWN, Surroundings
from tally.views import ErrorView


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingPartition:
    """The oldest record of a partition that is not counted."""

    written_at: datetime | None
    """Its timestamp, as Kafka has it; null when Kafka did not say in time."""
    expires_at: datetime | None
    """When retention may take it, at the earliest; null when it is kept by size alone, or that is
    not known."""

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


def waiting(
    ctx: Context,
    pipeline: str,
    *,
    surroundings: Surroundings = UNKNOWN,
    kafka_error: ErrorView | None = None,
    on_unanswered: Callable[[TallyError], None] = lambda _: None,
) -> WaitingView:
    """The status of a pipeline with what Kafka says; each of its answers is waited for so long.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        surroundings: What is known of Airflow and of the engine.
        kafka_error: Why Kafka does not answer, when that is known already: then it is not asked.
        on_unanswered: Called with the error when Kafka did not answer; the view says so, too. What
            it does not say of the times is in the view alone.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        MySQLUnavailableError: The server did not answer.
        OperatorError: The ledger is not migrated or access is denied.
    """
    asked_at = ctx.clock.now()
    view = status(
        ctx,
        pipeline,
        kafka_error=kafka_error,
        surroundings=surroundings,
        on_unanswered=on_unanswered,
    )
    first = {
        p.partition: p.kafka_end + (p.unstable_offsets or 0) - p.lag_offsets
        for p in view.partitions
        if p.lag_offsets and p.kafka_end is not None
    }
    errors: list[TallyError] = []
    times: Mapping[TopicPartition, datetime | None] = {}
    kept_for: Mapping[str, timedelta | None] = {}
    try:
        reads_committed = ctx.settings.pipeline(pipeline).reads_committed
        found = ctx.kafka.records_at(first, read_committed=reads_committed)
        times = {p: some[0].written_at for p, some in found.items() if some}
    except TallyError as error:
        errors.append(error)
    try:
        kept_for = ctx.kafka.retention(sorted({p.topic for p in first}))
    except TallyError as error:
        errors.append(error)
    return WaitingView(
        asked_at=asked_at,
        status=view,
        times_error=ErrorView.of(errors[0]) if errors else None,
        oldest={
            p: WaitingPartition(
                written_at=(at := times.get(p)), expires_at=_expiry(at, kept_for.get(p.topic))
            )
            for p in first
        },
    )


def _expiry(written_at: datetime | None, kept: timedelta | None) -> datetime | None:
    """When retention may take a record; None when that is not known, or beyond the calendar."""
    if written_at is None or kept is None:
        return None
    try:
        return written_at + kept
    except OverflowError:
        return None
