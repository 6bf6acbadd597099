"""Lost ranges: a list of them, and deciding about them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from tally.app.views import RangeView
from tally.ledger.decisions import LossRecord
from tally.model import LossCause


@dataclass(frozen=True, kw_only=True, slots=True)
class LossView(RangeView):
    """A lost range and what was decided about it."""

    lost_range_id: int
    """The ledger's key."""
    cause: LossCause
    """How the records went."""
    topic_id: str
    """The topic's id when they were lost."""
    state: str
    """``open``, ``accepted`` or ``restored``."""
    detected_at: datetime
    """When a plan first saw it."""
    decided_at: datetime | None
    """When it was accepted, found restored, or last left open by an operator."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class LossesView:
    """Lost ranges of a pipeline."""

    pipeline: str
    """The pipeline."""
    losses: tuple[LossView, ...]
    """Oldest first."""

    @classmethod
    def of(cls, pipeline: str, losses: Iterable[LossRecord]) -> Self:
        """The view of some losses."""
        return cls(pipeline=pipeline, losses=tuple(map(LossView.loss, losses)))
