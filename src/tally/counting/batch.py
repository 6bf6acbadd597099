"""Running a batch: claim, read and count, check, commit.

:func:`run_batch` can be called again at any time, by any process, and never counts a line twice.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tally.aggregates.counts import CountRequest, Counts
from tally.config.names import mirror_group
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.counting.checks import check_no_record_lost, check_still_served, check_understood
from tally.counting.commit import commit_once
from tally.errors import DataLossError, RecordsMissingError, TallyError
from tally.ledger import batches, positions
from tally.ledger.contributions import rows_replaced
from tally.ledger.line_sets import ledger_id
from tally.ledger.tables import tables_of
from tally.model import (
    Batch,
    BatchKind,
    BatchState,
    Loss,
    LossCause,
    OffsetRange,
    SegmentTotals,
    TopicPartition,
)
from tally.mysql.transactions import Transaction
from tally.planning.ingest import offset_conflicts
from tally.planning.serving import is_of_generation
from tally.views import CountedRange, view_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
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
    ranges: tuple[CountedRange, ...]
    """The ranges that it read, with their counts."""

    @classmethod
    def of(
        cls, batch: Batch, totals: Mapping[TopicPartition, SegmentTotals] | None, seconds: float = 0
    ) -> Self:
        """The outcome of a batch with what each range held; None where another call committed."""
        found = totals or {}
        return view_of(
            cls,
            batch,
            committed_before=totals is None,
            seconds=round(seconds, 3),
            ranges=tuple(
                CountedRange(range=s.range, totals=found.get(s.range.partition))
                for s in batch.segments
            ),
        )

    @property
    def committed(self) -> bool:
        """Whether this call has committed it."""
        return not self.committed_before

    @property
    def before(self) -> str:
        """That it was committed before, and by whom."""
        return f"was committed before, by attempt {self.attempt} of {self.claimed_by}"

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return sum(r.range.offsets for r in self.ranges)

    @property
    def records(self) -> int:
        """Records that this run has read."""
        return sum(r.totals.records for r in self.ranges if r.totals)

    @property
    def matched(self) -> int:
        """Lines that this run has counted."""
        return sum(r.totals.matched for r in self.ranges if r.totals)

    @property
    def malformed(self) -> int:
        """Records among them that could not be understood."""
        return sum(r.totals.malformed for r in self.ranges if r.totals)

    @property
    def continuations(self) -> int:
        """Records among them that begin no line and were left out."""
        return sum(r.totals.continuations or 0 for r in self.ranges if r.totals)


def run_batch(ctx: Context, batch_id: int) -> Ran:
    """Count a planned batch and commit it; nothing happens when it is committed already.

    Args:
        ctx: What is needed from outside; a reader is opened only when there is something to read.
        batch_id: The ledger's key of the batch.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        FencedError: A newer attempt owns the batch, or it was abandoned.
        RecordsMissingError: Offsets of the batch hold no record. An ingest batch is abandoned, and
            the partitions with holes are blocked; the next plan reads the others.
        DataLossError: What Kafka served is not what was planned.
        RetryableError: A server did not answer; run the batch again.
    """
    begun = ctx.clock.monotonic()
    batch = ctx.database.run(lambda tx: batches.claim(tx, batch_id, ctx.requester.name))
    pipeline = ctx.settings.pipeline(batch.pipeline)
    if batch.state is BatchState.COMMITTED:
        return Ran.of(batch, None)
    try:
        request = count_request(ctx, batch)
        with ctx.open_reader() as reader, reader.count(request) as counts:
            committed = commit_counts(ctx, batch, counts)
            seconds, totals = ctx.clock.monotonic() - begun, counts.totals
    except BaseException as error:
        end_attempt(ctx, batch, error)
        raise
    if not committed:
        return ran_by_another(ctx, batch, seconds)
    if batch.kind is BatchKind.INGEST:
        mirror_offsets(ctx, pipeline.name, request.ranges)
    return Ran.of(batch, totals, seconds)


def end_attempt(ctx: Context, batch: Batch, error: BaseException) -> None:
    """Record that an attempt has failed, so that the next plan need not wait; best effort.

    Where offsets hold no record, an ingest batch is abandoned and its partitions with holes are
    blocked. A replay's error says what comes next instead.

    Args:
        ctx: What is needed from outside.
        batch: The batch as it was claimed.
        error: Why it was not committed.
    """
    if isinstance(error, DataLossError) and batch.kind is not BatchKind.INGEST:
        # No plan goes on without the records: a replay's ranges are what was asked for.
        error.next_step = (
            f"give it up, what was counted stays: tally abandon {batch.batch_id} --reason '…'"
        )
    elif isinstance(error, RecordsMissingError):
        _block_missing(ctx, batch, error)
        return
    _release(ctx, batch)


def _block_missing(ctx: Context, batch: Batch, error: RecordsMissingError) -> None:
    """Abandon the batch and record its ranges with holes as losses, so that the others are read."""
    pipeline = ctx.settings.pipeline(batch.pipeline)

    def work(tx: Transaction) -> None:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        now = batches.find_batch(tx, batch.batch_id, lock=True)
        if (now.state, now.claim) != (BatchState.PLANNED, batch.claim):
            return
        reason = f"it can no longer be counted: {error.what}"[:1000]
        batches.abandon(tx, batch.batch_id, by=ctx.requester.name, reason=reason)
        known = positions.known_topics(tx, pipeline.name)
        for segment in batch.segments:
            topic = known[segment.range.partition.topic]
            # An adoption of another generation meanwhile has decided about this range.
            decided = not is_of_generation(segment, topic) or offset_conflicts([segment], known)
            if segment.range in error.ranges and not decided:
                loss = Loss(cause=LossCause.MISSING, range=segment.range)
                positions.record_loss(tx, topic.generation_id, loss)

    try:
        ctx.database.run(work)
    except TallyError as failure:
        # The batch stays planned: its next run finds the same holes and tries again.
        log.warning("batch_not_abandoned", extra={"batch": batch.batch_id, "cause": failure.what})


def ran_by_another(ctx: Context, batch: Batch, seconds: float) -> Ran:
    """The outcome of a batch that another attempt has committed."""
    with ctx.database.transaction(read_only=True) as tx:
        return Ran.of(batches.find_batch(tx, batch.batch_id), None, seconds)


def count_request(ctx: Context, batch: Batch) -> CountRequest:
    """What is read for a claimed batch."""
    pipeline = ctx.settings.pipeline(batch.pipeline)
    return CountRequest(
        pipeline=pipeline,
        ranges=batch.ranges,
        batch=batch,
        rows_before=_rows_before(ctx, batch, pipeline),
    )


def commit_counts(ctx: Context, batch: Batch, counts: Counts) -> bool:
    """Check what was read of a batch against Kafka and the ledger, and commit it.

    Args:
        ctx: What is needed from outside; no reader is.
        batch: The batch as it was claimed.
        counts: What was found in all of its ranges, checked against them.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        TallyError: As :func:`run_batch`; nothing was committed.
    """
    read_at = ctx.clock.now()
    check_still_served(ctx, batch)
    check_no_record_lost(ctx, batch, counts.totals)
    check_understood(ctx, batch, counts)
    return commit_once(ctx, batch, counts, read_at)


def _rows_before(ctx: Context, batch: Batch, pipeline: Pipeline) -> int:
    if batch.kind is not BatchKind.REPLAY or not pipeline.labels:  # only labels have a limit
        return 0
    with ctx.database.transaction(read_only=True) as tx:
        return rows_replaced(tx, tables_of(tx, batch.pipeline), batch.batch_id)


def _release(ctx: Context, batch: Batch) -> None:
    """Record that the attempt has failed, so that the next plan need not wait; best effort."""
    # One try without a long wait for a lock: the plan's own timeout has the same effect.
    try:
        with ctx.database.adjusted(lock_wait_timeout_s=1).transaction() as tx:
            batches.release(tx, batch)
    except TallyError as error:
        log.warning("batch_not_released", extra={"batch": batch.batch_id, "cause": error.what})


def mirror_offsets(ctx: Context, pipeline: str, ranges: Sequence[OffsetRange]) -> None:
    """Show the committed offsets to lag tools, with the ledger's id beside each.

    Best effort after the commit: an error is logged and changes nothing.
    """
    topics = {r.partition.topic for r in ranges}
    try:
        with ctx.database.transaction(read_only=True) as tx:
            offsets, ledger = positions.current_offsets(tx, pipeline), ledger_id(tx)
        mirrored = {p: o for p, o in offsets.items() if p.topic in topics}
        ctx.kafka.commit_offsets(mirror_group(pipeline), mirrored, ledger)
    except TallyError as error:
        log.warning("offsets_not_mirrored", extra={"pipeline": pipeline, "cause": error.what})
