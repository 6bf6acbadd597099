"""Running batches of single partitions: one Spark job, each task of which commits its own batch.

The driver claims and reports; it sees no row. Each task checks and commits as
:func:`tally.counting.batch.commit_counts` does for a batch of all partitions. Spark may run a task
again, or twice at the same time: all copies work for one attempt, and the first one to commit ends
the batch.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tally import __version__, errors
from tally.aggregates.counts import CountRequest, Counts
from tally.config.pipeline import Pipeline
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
from tally.errors import TallyError
from tally.ledger import batches
from tally.ledger.batches import Requester, abandoned_error
from tally.ledger.records import segments_of
from tally.model import Batch, BatchKind, BatchState, SegmentTotals, TopicPartition

Outcomes = dict[int, Ran | TallyError]
"""What became of some batches, by their ids: an error where one is not committed."""


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
    if isinstance(error, errors.OperatorError | errors.UsageError):
        return 2
    return 0 if isinstance(error, errors.RetryableError | errors.OutcomeUnknownError) else 1


def run_partitions(ctx: Context, batch_ids: Sequence[int]) -> Outcomes:
    """Count and commit batches of one partition each, all in one Spark job.

    A batch that fails keeps no other from its commit. Where Spark's own side fails for good, as
    with a record that it cannot read, each batch that is left gets a job of its own.

    Args:
        ctx: What is needed from outside, also in other processes (:attr:`Context.in_task`).
        batch_ids: Batches of one pipeline, of different partitions.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        RetryableError: Spark or MySQL did not answer; what was committed before stays.
    """
    begun = ctx.clock.monotonic()
    claimed = ctx.database.run(lambda tx: batches.claim_all(tx, batch_ids, ctx.requester.name))
    pipeline = ctx.settings.pipeline(claimed[0].pipeline)
    outcomes: Outcomes = {}
    for batch in claimed:
        if batch.state is BatchState.COMMITTED:
            outcomes[batch.batch_id] = Ran.of(batch, None)
        elif batch.state is BatchState.ABANDONED:
            with ctx.database.transaction(read_only=True) as tx:
                outcomes[batch.batch_id] = abandoned_error(tx, batch.batch_id)
    try:
        if todo := [batch for batch in claimed if batch.state is BatchState.PLANNED]:
            outcomes |= _count(ctx, pipeline, todo, begun)
    finally:
        delivery_of(ctx, pipeline).show_soon()  # also what other partitions have committed
    moved = [
        segment.range
        for batch in claimed
        for segment in batch.segments
        if batch.kind is BatchKind.INGEST and _has_committed(outcomes[batch.batch_id])
    ]
    if moved:
        mirror_offsets(ctx, pipeline.name, moved)
    return outcomes


def _has_committed(outcome: Ran | TallyError) -> bool:
    return isinstance(outcome, Ran) and outcome.committed


def _count(ctx: Context, pipeline: Pipeline, todo: Sequence[Batch], begun: float) -> Outcomes:
    """Count claimed batches in one job, or each in one of its own."""
    try:
        found = _count_in_tasks(ctx, pipeline, todo)
    except errors.OperatorError as error:
        if len(todo) > 1:  # it may be of one partition alone
            return _count_alone(ctx, pipeline, todo, begun)
        found = [(todo[0], error)]
    except BaseException as error:
        for batch in todo:
            end_attempt(ctx, batch, copy.copy(error))
        raise
    outcomes: Outcomes = {}
    for batch, outcome in found:
        seconds = ctx.clock.monotonic() - begun
        totals = _committed(ctx, batch) if isinstance(outcome, TallyError) else outcome
        if totals is not None:
            outcomes[batch.batch_id] = Ran.of(batch, totals, seconds)
        elif isinstance(outcome, TallyError):
            end_attempt(ctx, batch, outcome)
            outcomes[batch.batch_id] = outcome
        else:
            outcomes[batch.batch_id] = ran_by_another(ctx, batch, seconds)
    return outcomes


def _count_in_tasks(
    ctx: Context, pipeline: Pipeline, todo: Sequence[Batch]
) -> list[tuple[Batch, Any]]:
    """What each batch's task has returned, or the error that it has raised."""
    requests = [count_request(ctx, batch) for batch in todo]
    commit = partial(commit_in_task, ctx.in_task, ctx.requester, __version__)
    with ctx.open_reader() as reader:
        found = list(reader.count_each(requests, commit, delivery_of(ctx, pipeline).open_set))
    return [(_batch_of(request), outcome) for request, outcome in found]


def _count_alone(ctx: Context, pipeline: Pipeline, todo: Sequence[Batch], begun: float) -> Outcomes:
    """Count each batch in a job of its own; what none is begun for any more is released."""
    outcomes: Outcomes = {}
    for at, batch in enumerate(todo, start=1):
        try:
            outcomes |= _count(ctx, pipeline, [batch], begun)
        except BaseException as error:
            for left in todo[at:]:
                end_attempt(ctx, left, copy.copy(error))
            raise
    return outcomes


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


def commit_in_task(
    open_context: OpenContext,
    requester: Requester,
    version: str,
    request: CountRequest,
    counts: Counts,
) -> dict[TopicPartition, SegmentTotals] | None:
    """Commit a batch from the Spark task that has read its range.

    Args:
        open_context: Makes a context in the executor.
        requester: Who runs the batch.
        version: Of the driver's Tally.
        request: What was read.
        counts: What was found.

    Returns:
        The totals when this attempt has committed the batch; None when another one has.
    """
    if version != __version__:
        raise errors.PackageMissingError(
            f"the Python of Spark's executors has Tally {__version__}, and the driver's has "
            f"{version}",
            next_step="install the same version in both (PYSPARK_PYTHON names the executors'), "
            "and restart a Spark Connect server that was started before",
        )
    ctx = dataclasses.replace(open_context(), requester=requester)
    batch = _batch_of(request)
    if commit_counts(ctx, batch, counts):
        return counts.totals
    return _committed(ctx, batch)


def _batch_of(request: CountRequest) -> Batch:
    if request.batch is None:
        raise ValueError("a request that nothing is committed for")
    return request.batch
