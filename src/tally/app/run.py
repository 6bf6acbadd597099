"""Counting a batch, or batch after batch until a pipeline has caught up."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from tally.app.views import CountedRangeView, ErrorView
from tally.errors import UsageError
from tally.model import Batch
from tally.pipeline.context import Context
from tally.pipeline.plan import Planned, plan_batch
from tally.pipeline.replay import run_or_replan
from tally.pipeline.run import Ran
from tally.planning.blocks import Block, blocked_error


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """What to count: planned batches, or what a pipeline has to count next.

    Raises:
        UsageError: Both are named, or neither.
    """

    batch_ids: tuple[int, ...] = ()
    """These batches."""
    pipeline: str | None = None
    """This pipeline's next batch."""
    until_caught_up: bool = False
    """Whether to continue until everything is counted that Kafka held at the last plan."""

    def __post_init__(self) -> None:
        if bool(self.batch_ids) == (self.pipeline is not None):
            raise UsageError("name a batch or a pipeline", next_step="name one of the two")
        if self.batch_ids and self.until_caught_up:
            raise UsageError("a batch cannot catch up", next_step="name the pipeline instead")


@dataclass(frozen=True, kw_only=True, slots=True)
class RanView:
    """The outcome of a batch that was run."""

    batch_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline."""
    attempt: int
    """The attempt that counted it."""
    claimed_by: str | None
    """Who began that attempt."""
    committed_before: bool
    """Whether another call has committed it; then the ranges have no counts."""
    seconds: float
    """Seconds from the claim to the commit."""
    ranges: tuple[CountedRangeView, ...]
    """The ranges that it read, with their counts."""

    @classmethod
    def of(cls, ran: Ran) -> Self:
        """The view of a batch that was run."""
        return cls(
            batch_id=ran.batch.batch_id,
            pipeline=ran.batch.pipeline,
            attempt=ran.batch.attempt,
            claimed_by=ran.batch.claimed_by,
            committed_before=not ran.committed,
            seconds=round(ran.seconds, 3),
            ranges=tuple(
                CountedRangeView.counted(s.range, ran.totals.get(s.range.partition))
                for s in ran.batch.segments
            ),
        )

    @property
    def before(self) -> str:
        """That it was committed before, and by whom."""
        return f"was committed before, by attempt {self.attempt} of {self.claimed_by}"

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return sum(r.offsets for r in self.ranges)

    @property
    def records(self) -> int:
        """Records that this run has read."""
        return sum(r.records or 0 for r in self.ranges)

    @property
    def matched(self) -> int:
        """Lines that this run has counted."""
        return sum(r.matched or 0 for r in self.ranges)

    @property
    def malformed(self) -> int:
        """Records among them that could not be understood."""
        return sum(r.malformed or 0 for r in self.ranges)

    @property
    def continuations(self) -> int:
        """Records among them that begin no line and were left out."""
        return sum(r.continuations or 0 for r in self.ranges)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """What a run has counted."""

    pipeline: str | None
    """The pipeline; null when a batch was named."""
    batches: tuple[RanView, ...]
    """The batches, in the order in which they were run."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""

    @property
    def unmatched(self) -> int:
        """Well-formed lines that were read, when not one of them was counted; 0 otherwise."""
        if any(batch.matched for batch in self.batches):
            return 0
        return sum(b.records - b.malformed - b.continuations for b in self.batches)

    def check_unblocked(self) -> None:
        """Raise while something is blocked; the other partitions were counted all the same.

        Raises:
            OperatorError: With every block and the next step.
        """
        if self.pipeline is not None and self.blocks:
            raise blocked_error(self.pipeline, self.blocks)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsView:
    """What runs of several pipelines have counted."""

    runs: tuple[RunView, ...]
    """The run of each pipeline that could be counted, by name."""
    errors: Mapping[str, ErrorView]
    """Why another pipeline could not be counted, or what of one is blocked, by name."""


def run(
    ctx: Context,
    request: RunRequest,
    *,
    on_batch: Callable[[RanView], None] = lambda _: None,
    on_abandoned: Callable[[str], None] = lambda _: None,
) -> RunView:
    """Count planned batches, or the next ones of a pipeline, and commit each.

    A replay's batch whose segments another replay has superseded is replanned first; the batches
    that replace it are run.

    Args:
        ctx: What is needed from outside; a reader is opened only when there is something to read.
        request: What to count.
        on_batch: Called with each batch when it is committed.
        on_abandoned: Called with the reason when an open batch had to be abandoned.

    Raises:
        TallyError: As :func:`tally.pipeline.replay.run_or_replan` and
            :func:`tally.pipeline.plan.plan_batch`; what was committed before stays.
    """
    done: list[RanView] = []

    def tell(ran: Ran) -> None:
        done.append(RanView.of(ran))
        on_batch(done[-1])

    blocks: tuple[Block, ...] = ()
    if request.batch_ids:
        run_or_replan(ctx, request.batch_ids, on_ran=tell)
    if request.pipeline is not None:
        limit = ctx.settings.pipeline(request.pipeline).max_records_per_partition
        is_done = False
        while not is_done:
            planned = plan_batch(ctx, request.pipeline)
            blocks = planned.blocks
            for cause in planned.abandoned:
                on_abandoned(cause)
            if planned.batches:
                run_or_replan(ctx, [batch.batch_id for batch in planned.batches], on_ran=tell)
            is_done = not request.until_caught_up or has_caught_up(planned, limit)
    return RunView(pipeline=request.pipeline, batches=tuple(done), blocks=blocks)


def has_caught_up(planned: Planned, max_records_per_partition: int) -> bool:
    """Whether nothing was left in Kafka when the batches were planned.

    A resumed batch does not say what Kafka holds now.
    """
    if not planned.batches:
        return True
    return not planned.resumed and not are_cut(planned.batches, max_records_per_partition)


def are_cut(batches: Iterable[Batch], max_records_per_partition: int) -> bool:
    """Whether batches may have left records: at the size limit, or behind an accepted hole.

    A hole is read by itself, however small it is.
    """
    return any(
        segment.range.offsets >= max_records_per_partition or segment.missing_accepted
        for batch in batches
        for segment in batch.segments
    )
