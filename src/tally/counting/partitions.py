"""Running batches of single partitions: one Spark job, each task of which commits its own batch.

The driver claims and reports; it sees no row. Each task checks and commits as
:func:`tally.counting.batch.commit_counts` does for a batch of all partitions. Spark may run a task
again, or twice at the same time: all copies work for one attempt, and the first one to commit ends
the batch.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tally import __version__
from tally.aggregates.counts import CountRequest, Counts
from tally.context import Context, OpenContext
from tally.counting.batch import (
    Ran,
    commit_counts,
    count_request,
    end_attempt,
    mirror_offsets,
    ran_by_another,
)
from tally.deliveries.kept_lines import delivery_of
from tally.errors import (
    OperatorError,
    OutcomeUnknownError,
    PackageMissingError,
    RetryableError,
    TallyError,
    UsageError,
)
from tally.ledger import batches
from tally.ledger.batches import Requester, abandoned_error
from tally.ledger.records import segments_of
from tally.model import Batch, BatchKind, BatchState, SegmentTotals, TopicPartition


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of some batches."""

    done: list[Ran] = field(default_factory=list)
    """Those that are committed."""
    failed: dict[int, TallyError] = field(default_factory=dict)
    """Why others are not, by batch id."""


def worst_of(failed: Mapping[int, TallyError]) -> TallyError:
    """The error of the worst failure, with the others in its sentence."""
    worst = max(failed, key=lambda batch_id: _severity(failed[batch_id]))
    others = [f"batch {n}: [{e.code}] {e.what}" for n, e in failed.items() if n != worst]
    if not others:
        return failed[worst]
    error = copy.copy(failed[worst])
    error.what = f"{error.what}; besides, {'; '.join(others)}"
    return error


def _severity(error: TallyError) -> int:
    """Higher where waiting helps less."""
    if isinstance(error, OperatorError | UsageError):
        return 2
    return 0 if isinstance(error, RetryableError | OutcomeUnknownError) else 1


def run_partitions(ctx: Context, batch_ids: Sequence[int]) -> Outcomes:
    """Count and commit batches of one partition each, all in one Spark job.

    A batch that fails keeps no other from its commit. Where Spark's own side fails for good, as
    with a record that it cannot read, each batch that is left gets a job of its own.

    Args:
        ctx: What is needed from outside, also in other processes (:attr:`Context.elsewhere`).
        batch_ids: Batches of one pipeline, of different partitions.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        RetryableError: Spark or MySQL did not answer; what was committed before stays.
    """
    begun = ctx.clock.monotonic()
    claimed = ctx.database.run(lambda tx: batches.claim_all(tx, batch_ids, ctx.requester.name))
    outcomes = Outcomes()
    todo = [b for b in claimed if b.state is BatchState.PLANNED]
    for batch in claimed:
        if batch.state is BatchState.COMMITTED:
            outcomes.done.append(Ran(batch=batch, committed=False, totals={}, seconds=0.0))
        elif batch.state is BatchState.ABANDONED:
            with ctx.database.transaction(read_only=True) as tx:
                outcomes.failed[batch.batch_id] = abandoned_error(tx, batch.batch_id)
    try:
        if todo:
            _count(ctx, todo, outcomes, begun)
    except TallyError:
        _show(ctx, claimed)  # what other partitions have committed
        raise
    _show(ctx, claimed)
    _mirror(ctx, outcomes.done)
    return outcomes


def _count(ctx: Context, todo: Sequence[Batch], outcomes: Outcomes, begun: float) -> None:
    pipeline = ctx.settings.pipeline(todo[0].pipeline)
    outcome_of: list[tuple[Batch, Any]]
    try:
        requests = [count_request(ctx, batch, pipeline) for batch in todo]
        with ctx.open_reader() as reader:
            commit = _CommitInTask.of(ctx)
            keep = delivery_of(ctx, pipeline).open_set
            found = list(reader.count_each(requests, commit, keep))
        outcome_of = [(_batch_of(request), outcome) for request, outcome in found]
    except OperatorError as error:
        if len(todo) > 1:  # it may be of one partition alone
            _count_alone(ctx, todo, outcomes, begun)
            return
        outcome_of = [(todo[0], error)]
    except BaseException as error:
        for batch in todo:
            end_attempt(ctx, batch, pipeline, copy.copy(error))
        raise
    for batch, outcome in outcome_of:
        seconds = ctx.clock.monotonic() - begun
        totals = _committed(ctx, batch) if isinstance(outcome, TallyError) else outcome
        if totals is not None:
            ran = Ran(batch=batch, committed=True, totals=totals, seconds=seconds)
            outcomes.done.append(ran)
        elif isinstance(outcome, TallyError):
            end_attempt(ctx, batch, pipeline, outcome)
            outcomes.failed[batch.batch_id] = outcome
        else:
            outcomes.done.append(ran_by_another(ctx, batch, seconds))


def _count_alone(ctx: Context, todo: Sequence[Batch], outcomes: Outcomes, begun: float) -> None:
    """Count each batch in a job of its own; what none is begun for any more is released."""
    for at, batch in enumerate(todo, start=1):
        try:
            _count(ctx, [batch], outcomes, begun)
        except BaseException as error:
            for left in todo[at:]:
                end_attempt(ctx, left, ctx.settings.pipeline(left.pipeline), copy.copy(error))
            raise


def _show(ctx: Context, claimed: Sequence[Batch]) -> None:
    for name in {batch.pipeline for batch in claimed}:
        delivery_of(ctx, ctx.settings.pipeline(name)).show_soon()


def _mirror(ctx: Context, done: Sequence[Ran]) -> None:
    moved = [ran.batch for ran in done if ran.committed and ran.batch.kind is BatchKind.INGEST]
    if moved:
        mirror_offsets(ctx, moved[0].pipeline, [s.range for b in moved for s in b.segments])


def _committed(ctx: Context, batch: Batch) -> dict[TopicPartition, SegmentTotals] | None:
    """What the ledger has of a batch that this attempt has committed; None if it has not.

    Spark may run a task again whose commit it has not heard of.
    """
    with ctx.database.transaction(read_only=True) as tx:
        now = batches.find_batch(tx, batch.batch_id)
        if now.state is not BatchState.COMMITTED or now.claim != batch.claim:
            return None
        segments = segments_of(tx, batch.batch_id)
    return {s.range.partition: s.totals for s in segments if s.totals is not None}


@dataclass(frozen=True, slots=True)
class _CommitInTask:
    """Commits a batch from the Spark task that has read its range; picklable."""

    open_context: OpenContext
    requester: Requester
    version: str
    """Of the driver's Tally."""

    @classmethod
    def of(cls, ctx: Context) -> "_CommitInTask":
        return cls(open_context=ctx.in_task, requester=ctx.requester, version=__version__)

    def __call__(
        self, request: CountRequest, counts: Counts
    ) -> dict[TopicPartition, SegmentTotals] | None:
        """The totals when this attempt has committed the batch; None when another one has."""
        if self.version != __version__:
            raise PackageMissingError(
                f"the Python of Spark's executors has Tally {__version__}, and the driver's has "
                f"{self.version}",
                next_step="install the same version in both (PYSPARK_PYTHON names the executors'), "
                "and restart a Spark Connect server that was started before",
            )
        ctx = dataclasses.replace(self.open_context(), requester=self.requester)
        batch = _batch_of(request)
        if commit_counts(ctx, batch, request.pipeline, counts):
            return counts.totals
        return _committed(ctx, batch)


def _batch_of(request: CountRequest) -> Batch:
    if request.batch is None:
        raise ValueError("a request that nothing is committed for")
    return request.batch
