"""Lost ranges: listing them, and recording an operator's decision about them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from tally.context import Context
from tally.ledger.decisions import LossRecord, accept_losses, find_losses, keep_blocked
from tally.ledger.positions import lock_pipeline
from tally.model import LossCause
from tally.mysql.transactions import Transaction
from tally.views import RangeView


@dataclass(frozen=True, kw_only=True, slots=True)
class LossView(RangeView):
    """A lost range and what was decided about it."""

    lost_range_id: int
    """The ledger's key."""
    cause: LossCause
    """How the records were lost."""
    topic_id: str
    """The topic's id when they were lost."""
    state: str
    """``open``, ``accepted`` or ``restored``."""
    detected_at: datetime
    """When a plan first saw it."""
    decided_at: datetime | None
    """When an operator accepted it or left it open, or it was found restored."""
    decided_by: str | None
    """Who accepted it or left it open."""
    reason: str | None
    """Why."""

    @classmethod
    def loss(cls, loss: LossRecord) -> Self:
        """The view of a loss."""
        return cls.of(
            loss.range,
            lost_range_id=loss.lost_range_id,
            cause=loss.cause,
            topic_id=loss.topic_id,
            state=loss.state,
            detected_at=loss.detected_at,
            decided_at=loss.decided_at,
            decided_by=loss.decided_by,
            reason=loss.reason,
        )

    @property
    def record(self) -> LossRecord:
        """The loss as the ledger's statements take it."""
        return LossRecord(
            lost_range_id=self.lost_range_id,
            cause=self.cause,
            range=self.range,
            topic_id=self.topic_id,
            state=self.state,
            detected_at=self.detected_at,
            decided_at=self.decided_at,
            decided_by=self.decided_by,
            reason=self.reason,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LossesRequest:
    """Which losses to list."""

    pipeline: str
    """The pipeline."""
    only_open: bool = False
    """Whether only open losses are listed."""
    topic: str | None = None
    """Only of this topic."""
    partition: int | None = None
    """Only of the partitions with this number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossesView:
    """Lost ranges of a pipeline."""

    pipeline: str
    """The pipeline."""
    losses: tuple[LossView, ...]
    """Oldest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossDecision:
    """What is decided about losses."""

    seen: LossesView
    """The losses as they were shown; the decision is about exactly these."""
    accept: bool
    """Whether they are accepted, so that counting continues after them; else they stay open."""
    reason: str
    """Why; kept in the ledger."""
    dry_run: bool = False
    """Whether nothing is changed."""


def losses(ctx: Context, request: LossesRequest) -> LossesView:
    """The pipeline's lost ranges, oldest first.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = find_losses(tx, request.pipeline, only_open=request.only_open)
    return LossesView(
        pipeline=request.pipeline,
        losses=tuple(
            LossView.loss(loss)
            for loss in found
            if request.topic in {None, loss.range.partition.topic}
            and request.partition in {None, loss.range.partition.partition}
        ),
    )


def decide_losses(ctx: Context, decision: LossDecision) -> None:
    """Accept losses exactly as they were seen, or note that they stay open, in one transaction.

    Args:
        ctx: What is needed from outside; the ledger records its requester as who has decided.
        decision: The decision.

    Raises:
        UsageError: One of them has grown, or was decided meanwhile. Nothing is changed.
    """
    pipeline = ctx.settings.pipeline(decision.seen.pipeline)
    decide = accept_losses if decision.accept else keep_blocked
    seen = [loss.record for loss in decision.seen.losses]

    def work(tx: Transaction) -> None:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        decide(tx, pipeline.name, seen, by=ctx.requester.name, reason=decision.reason)

    ctx.database.run(work, dry_run=decision.dry_run)
