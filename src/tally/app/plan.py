"""Planning a pipeline's next batch."""

from dataclasses import dataclass
from datetime import datetime

from tally.app.views import RangeView
from tally.formatting import plural
from tally.model import Batch, BatchKind, BatchState
from tally.pipeline.context import Context
from tally.pipeline.plan import Planned, plan_batch
from tally.planning.blocks import Block, blocked_error


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRequest:
    """Which pipeline to plan for."""

    pipeline: str
    """The pipeline."""
    dry_run: bool = False
    """Whether nothing is written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBatchView:
    """A planned batch with its ranges."""

    batch_id: int | None
    """The ledger's key; null for a batch that a dry run would plan."""
    pipeline: str
    """The pipeline."""
    kind: BatchKind
    """``ingest``."""
    state: BatchState
    """``planned``."""
    attempt: int
    """How many attempts have claimed it."""
    planned_at: datetime
    """When its ranges were fixed."""
    offsets: int
    """How many offsets it spans."""
    ranges: tuple[RangeView, ...]
    """What it reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanView:
    """The outcome of planning."""

    pipeline: str
    """The pipeline."""
    dry_run: bool
    """Whether nothing was written."""
    batch: PlannedBatchView | None
    """The batch to run; null when nothing is new."""
    resumed: bool
    """Whether the batch was planned before."""
    abandoned: tuple[str, ...]
    """Why the open batch was abandoned; empty when it was not."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""

    @property
    def title(self) -> str:
        """The outcome in one line."""
        batch = self.batch
        if batch is None:
            return f"{self.pipeline}: {'nothing planned' if self.blocks else 'nothing new'}"
        if self.resumed:
            verb = "would be resumed" if self.dry_run else "is resumed"
        elif self.dry_run:
            return f"{self.pipeline}: a batch would be planned: {self.extent}"
        else:
            verb = "is planned"
        return f"batch {batch.batch_id} of {self.pipeline} {verb}: {self.extent}"

    @property
    def extent(self) -> str:
        """The size of the batch: ``4 partitions, 1,000 offsets``."""
        if self.batch is None:
            return "nothing"
        ranges = plural(len(self.batch.ranges), "partition")
        return f"{ranges}, {plural(self.batch.offsets, 'offset')}"

    def check_unblocked(self) -> None:
        """Raise while something is blocked; the other partitions were planned all the same.

        Raises:
            OperatorError: With every block and the next step.
        """
        if self.blocks:
            raise blocked_error(self.pipeline, self.blocks)


def plan(ctx: Context, request: PlanRequest) -> PlanView:
    """Fix what the pipeline's next batch reads, or find the batch that is open.

    Raises:
        TallyError: As :func:`tally.pipeline.plan.plan_batch`.
    """
    planned = plan_batch(ctx, request.pipeline, dry_run=request.dry_run)
    return plan_view(planned, dry_run=request.dry_run)


def plan_view(planned: Planned, *, dry_run: bool = False) -> PlanView:
    """The view of a plan."""
    is_unwritten = dry_run and not planned.resumed
    return PlanView(
        pipeline=planned.pipeline,
        dry_run=dry_run,
        batch=None if planned.batch is None else _batch(planned.batch, is_unwritten=is_unwritten),
        resumed=planned.resumed,
        abandoned=planned.abandoned,
        blocks=planned.blocks,
    )


def _batch(batch: Batch, *, is_unwritten: bool) -> PlannedBatchView:
    return PlannedBatchView(
        batch_id=None if is_unwritten else batch.batch_id,
        pipeline=batch.pipeline,
        kind=batch.kind,
        state=batch.state,
        attempt=batch.attempt,
        planned_at=batch.planned_at,
        offsets=batch.offsets,
        ranges=tuple(RangeView.of(segment.range) for segment in batch.segments),
    )
