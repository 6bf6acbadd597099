"""Running planned batches: claim, read and count, check, commit.

:func:`run_planned` can be called again at any time, by any process, and never counts a line twice.

A batch of all partitions is committed here. Of batches of single partitions each is committed by
the Spark task that reads it, all in one job: this process claims and reports, and sees no row.
Spark may run a task again, or twice at the same time: all copies work for one attempt, and the
first one to commit ends the batch.
"""

import dataclasses
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from tally import __version__, errors, model
from tally.aggregates.counts import CountRequest, Counts
from tally.config.names import mirror_group
from tally.config.pipeline import Pipeline
from tally.context import Context, OpenContext, Transaction
from tally.counting.checks import check_no_record_lost, check_still_served, check_understood
from tally.counting.commit import commit_once
from tally.counting.outcomes import Ran
from tally.deliveries.kept_lines import delivery_of
from tally.errors import TallyError
from tally.ledger import batches, positions
from tally.ledger.contributions import rows_replaced
from tally.ledger.line_sets import ledger_id
from tally.ledger.records import segments_of
from tally.ledger.tables import tables_of
from tally.logs import about
from tally.planning.ingest import offset_conflicts

log = logging.getLogger(__name__)

Outcomes = dict[int, Ran | TallyError]
"""What became of some batches, by their ids: an error where one is not committed."""

Totals = dict[model.TopicPartition, model.SegmentTotals]
"""What was found in each range."""


def run_planned(ctx: Context, batch_ids: Sequence[int]) -> Outcomes:
    """Count and commit a planned batch, or batches of one partition each in one Spark job.

    What is committed already is not read. A batch that fails keeps no other from its commit. Where
    Spark's own side fails for good, as with a record that it cannot read, each batch that is left
    gets a job of its own.

    Where offsets hold no record, an ingest batch is abandoned, and the partitions with holes are
    blocked; the next plan reads the others.

    Args:
        ctx: What is needed from outside, for single partitions also in other processes
            (:attr:`Context.in_task`); a reader is opened only when there is something to read.
        batch_ids: One batch, or batches of one pipeline and of different partitions.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        FencedError: A newer attempt owns the batch of all partitions.
        RetryableError: A server did not answer; run them again: what was committed before stays.
    """
    begun = ctx.clock.monotonic()
    claimed = ctx.database.run(lambda tx: batches.claim(tx, batch_ids, ctx.requester.name))
    pipeline = ctx.settings.pipeline(claimed[0].pipeline)
    with about(pipeline=pipeline.name, run=claimed[0].run_id):
        return _run_claimed(ctx, pipeline, claimed, begun)


def _run_claimed(
    ctx: Context, pipeline: Pipeline, claimed: Sequence[model.Batch], begun: float
) -> Outcomes:
    outcomes: Outcomes = {}
    for batch in claimed:
        if batch.state is model.BatchState.COMMITTED:
            outcomes[batch.batch_id] = Ran.of(batch, None)
        elif batch.state is model.BatchState.ABANDONED:
            with ctx.database.transaction(read_only=True) as tx:
                outcomes[batch.batch_id] = batches.abandoned_error(tx, batch.batch_id)
    todo = [batch for batch in claimed if batch.state is model.BatchState.PLANNED]
    for batch in todo:
        log.info("batch_claimed", extra=_of(batch) | {"offsets": batch.offsets})
    try:
        if todo:
            outcomes |= _count(ctx, pipeline, todo, begun)
    finally:
        delivery_of(ctx, pipeline).show_soon()  # also what other partitions have committed
    ours = {n for n, ran in outcomes.items() if isinstance(ran, Ran) and ran.committed}
    moved = [b for b in claimed if b.kind is model.BatchKind.INGEST and b.batch_id in ours]
    if moved:
        _mirror_offsets(ctx, pipeline.name, moved)
    return outcomes


def _count(ctx: Context, pipeline: Pipeline, todo: Sequence[model.Batch], begun: float) -> Outcomes:
    """Count claimed batches in one job, or each in one of its own."""
    try:
        try:
            found = _count_in_one_job(ctx, pipeline, todo)
        except errors.OperatorError as error:
            if len(todo) > 1:  # it may be of one partition alone
                alone = (_count(ctx, pipeline, [batch], begun) for batch in todo)
                return {n: outcome for of_one in alone for n, outcome in of_one.items()}
            found = [(todo[0], error)]
        return {b.batch_id: _outcome(ctx, b, outcome, begun) for b, outcome in found}
    except BaseException:
        for batch in todo:
            _release(ctx, batch)
        raise


def _outcome(ctx: Context, batch: model.Batch, outcome: Any, begun: float) -> Ran | TallyError:
    """What has become of a batch, from its totals, or the error of its task."""
    seconds = ctx.clock.monotonic() - begun
    totals = _committed(ctx, batch) if isinstance(outcome, TallyError) else outcome
    if totals is not None:
        ran = Ran.of(batch, totals, seconds)
        log.info("batch_committed", extra=_of(batch) | {"records": ran.total.records})
        return ran
    if isinstance(outcome, TallyError):
        _end_attempt(ctx, batch, outcome)
        return outcome
    with ctx.database.transaction(read_only=True) as tx:
        by_another = batches.find_batch(tx, batch.batch_id)
    return Ran.of(by_another, None, seconds)


def _count_in_one_job(
    ctx: Context, pipeline: Pipeline, todo: Sequence[model.Batch]
) -> list[tuple[model.Batch, Any]]:
    """The totals of each batch, None where another attempt has committed it, or its task's error.

    Raises:
        TallyError: What was read is not committed.
    """
    requests = [count_request(ctx, batch) for batch in todo]
    with ctx.open_reader() as reader:
        if todo[0].is_of_partition:
            commit = partial(commit_in_task, ctx.in_task, ctx.requester, __version__)
            found = reader.count_each(requests, commit, delivery_of(ctx, pipeline).open_set)
            return [(request.claimed, outcome) for request, outcome in found]
        with reader.count(requests[0]) as counts:
            is_ours = commit_counts(ctx, todo[0], counts)
        return [(todo[0], counts.totals if is_ours else None)]


def _of(batch: model.Batch) -> dict[str, Any]:
    """What a log line says of a batch."""
    return {"batch": batch.batch_id, "attempt": batch.attempt}


def _committed(ctx: Context, batch: model.Batch) -> Totals | None:
    """What the ledger has of a batch that this attempt has committed; None if it has not.

    Spark may run a task again whose commit it has not heard of.
    """
    with ctx.database.transaction(read_only=True) as tx:
        now = batches.find_batch(tx, batch.batch_id)
        if now.state is not model.BatchState.COMMITTED or now.claim != batch.claim:
            return None
        segments = segments_of(tx, batch.batch_id)
    return {s.range.partition: s.totals for s in segments if s.totals is not None}


def commit_in_task(
    open_context: OpenContext,
    requester: batches.Requester,
    version: str,
    request: CountRequest,
    counts: Counts,
) -> Totals | None:
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
            next_step="install the same version in both (PYSPARK_PYTHON names the executors'; an "
            "archive for them is made again by tally jars DIR --python), "
            "and restart a Spark Connect server that was started before",
        )
    ctx = dataclasses.replace(open_context(), requester=requester)
    if commit_counts(ctx, request.claimed, counts):
        return counts.totals
    return _committed(ctx, request.claimed)


def _end_attempt(ctx: Context, batch: model.Batch, error: TallyError) -> None:
    """Record that an attempt has failed, so that the next plan need not wait; best effort.

    Where offsets hold no record, an ingest batch is abandoned and its partitions with holes are
    blocked. A replay's error says what comes next instead.

    Args:
        ctx: What is needed from outside.
        batch: The batch as it was claimed.
        error: Why it was not committed.
    """
    if isinstance(error, errors.DataLossError) and batch.kind is not model.BatchKind.INGEST:
        # No plan goes on without the records: a replay's ranges are what was asked for.
        error.next_step = (
            f"give it up, what was counted stays: tally abandon {batch.batch_id} --reason '…'"
        )
    elif isinstance(error, errors.RecordsMissingError):
        _block_missing(ctx, batch, error)
        return
    _release(ctx, batch)


def _block_missing(ctx: Context, batch: model.Batch, error: errors.RecordsMissingError) -> None:
    """Abandon the batch and record its ranges with holes as losses, so that the others are read."""
    pipeline = ctx.settings.pipeline(batch.pipeline)

    def work(tx: Transaction) -> None:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        now = batches.find_batch(tx, batch.batch_id, lock=True)
        if (now.state, now.claim) != (model.BatchState.PLANNED, batch.claim):
            return
        reason = f"it can no longer be counted: {error.what}"[:1000]
        batches.abandon(tx, batch.batch_id, by=ctx.requester.name, reason=reason)
        known = positions.known_topics(tx, pipeline.name)
        for segment in batch.segments:
            topic = known[segment.range.partition.topic]
            # An adoption of another generation meanwhile has decided about this range.
            decided = not segment.is_same(topic) or offset_conflicts([segment], known)
            if segment.range in error.ranges and not decided:
                loss = model.Loss(cause=model.LossCause.MISSING, range=segment.range)
                positions.record_loss(tx, topic.generation_id, loss)

    try:
        ctx.database.run(work)
    except TallyError as failure:
        # The batch stays planned: its next run finds the same holes and tries again.
        log.warning("batch_not_abandoned", extra=_of(batch) | {"cause": failure.what})


def count_request(ctx: Context, batch: model.Batch) -> CountRequest:
    """What is read for a claimed batch."""
    pipeline = ctx.settings.pipeline(batch.pipeline)
    return CountRequest(
        pipeline=pipeline,
        ranges=batch.ranges,
        batch=batch,
        rows_before=_rows_before(ctx, batch, pipeline),
    )


def commit_counts(ctx: Context, batch: model.Batch, counts: Counts) -> bool:
    """Check what was read of a batch against Kafka and the ledger, and commit it.

    Args:
        ctx: What is needed from outside; no reader is.
        batch: The batch as it was claimed.
        counts: What was found in all of its ranges, checked against them.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        TallyError: A check has failed, or the commit; nothing was committed.
    """
    read_at = ctx.clock.now()
    check_still_served(ctx, batch)
    check_no_record_lost(ctx, batch, counts.totals)
    check_understood(ctx, batch, counts)
    return commit_once(ctx, batch, counts, read_at)


def _rows_before(ctx: Context, batch: model.Batch, pipeline: Pipeline) -> int:
    if batch.kind is not model.BatchKind.REPLAY or not pipeline.labels:  # only labels have a limit
        return 0
    with ctx.database.transaction(read_only=True) as tx:
        return rows_replaced(tx, tables_of(tx, batch.pipeline), batch.batch_id)


def _release(ctx: Context, batch: model.Batch) -> None:
    """Record that the attempt has failed, so that the next plan need not wait; best effort."""
    # One try without a long wait for a lock: the plan's own timeout has the same effect.
    try:
        with ctx.database.adjusted(lock_wait_timeout_s=1).transaction() as tx:
            batches.release(tx, batch)
    except TallyError as error:
        log.warning("batch_not_released", extra=_of(batch) | {"cause": error.what})


def _mirror_offsets(ctx: Context, pipeline: str, moved: Sequence[model.Batch]) -> None:
    """Show the committed offsets to lag tools, with the ledger's id beside each.

    Best effort after the commit: an error is logged and changes nothing.
    """
    topics = {segment.range.partition.topic for batch in moved for segment in batch.segments}
    try:
        with ctx.database.transaction(read_only=True) as tx:
            offsets, ledger = positions.current_offsets(tx, pipeline), ledger_id(tx)
        mirrored = {p: o for p, o in offsets.items() if p.topic in topics}
        ctx.kafka.commit_offsets(mirror_group(pipeline), mirrored, ledger)
    except TallyError as error:
        log.warning("offsets_not_mirrored", extra={"cause": error.what})
