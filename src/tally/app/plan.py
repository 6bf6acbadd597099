"""Planning what a pipeline counts next."""

from collections.abc import Sequence
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
    batches: tuple[PlannedBatchView, ...]
    """What is to be run: at most one batch, or by partition one of each; empty when nothing is
    new."""
    resumed: bool
    """Whether one of them was planned before."""
    abandoned: tuple[str, ...]
    """Why an open batch was abandoned; empty when none was."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""

    @property
    def title(self) -> str:
        """The outcome in one line."""
        if not self.batches:
            return f"{self.pipeline}: {'nothing planned' if self.blocks else 'nothing new'}"
        if self.dry_run and not self.resumed:
            what = "a batch" if len(self.batches) == 1 else plural(len(self.batches), "batch")
            return f"{self.pipeline}: {what} would be planned: {self.extent}"
        return f"{named_batches(self.batch_ids)} of {self.pipeline} {self.verb}: {self.extent}"

    @property
    def verb(self) -> str:
        """What becomes of the batches: ``is planned``, ``are resumed``."""
        are = "would be" if self.dry_run else "is" if len(self.batches) == 1 else "are"
        return f"{are} {'resumed' if self.resumed else 'planned'}"

    @property
    def batch_ids(self) -> list[int]:
        """The ledger's keys of the batches that are recorded there."""
        return [batch.batch_id for batch in self.batches if batch.batch_id is not None]

    @property
    def ranges(self) -> list[RangeView]:
        """What the batches read."""
        return [r for batch in self.batches for r in batch.ranges]

    @property
    def extent(self) -> str:
        """The size of the batches: ``4 partitions, 1,000 offsets``."""
        offsets = sum(batch.offsets for batch in self.batches)
        return f"{plural(len(self.ranges), 'partition')}, {plural(offsets, 'offset')}"

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
    unwritten = planned.new_ids if dry_run else ()
    return PlanView(
        pipeline=planned.pipeline,
        dry_run=dry_run,
        batches=tuple(
            _batch(batch, is_unwritten=batch.batch_id in unwritten) for batch in planned.batches
        ),
        resumed=planned.resumed,
        abandoned=planned.abandoned,
        blocks=planned.blocks,
    )


def named_batches(batch_ids: Sequence[int]) -> str:
    """``batch 3``, or ``batches 3, 4``."""
    noun = "batch" if len(batch_ids) == 1 else "batches"
    return f"{noun} {', '.join(map(str, batch_ids))}"


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
