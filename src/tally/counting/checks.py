"""The checks of what was read against Kafka and the ledger, before it is committed.

The reader has compared what it read with what was asked for (:mod:`tally.aggregates.checks`).
"""

from collections.abc import Mapping
from typing import Final

from tally.aggregates.aggregate import fingerprint
from tally.aggregates.checks import find_format
from tally.aggregates.counts import Counts
from tally.config.pipeline import Pipeline
from tally.context import Context, Transaction
from tally.errors import DataLossError, MalformedFloodError
from tally.ledger.rules import Understood, records_in_sound_batches, replaces_only
from tally.model import EMPTY_TOTALS, Batch, BatchKind, SegmentTotals, TopicPartition
from tally.planning.ingest import unreadable

ENOUGH_RECORDS: Final = 1_000
"""A share of fewer records says little: no batch is stopped for it, and no rule is trusted."""


def check_understood(ctx: Context, batch: Batch, counts: Counts) -> None:
    """Raise if most of a batch is malformed and its rule has not yet proven itself.

    Records that begin no line, where the pipeline leaves them out, say nothing about the others;
    but if there are no others, the line format is wrong, or the lines have changed: nothing else
    would show it, so it stops whatever the rule has proven.

    A rule has proven itself when batches under it that were within ``max_malformed_ratio`` have
    read a thousand records; from then on a larger share is a warning of the pipeline's health, as
    the lines have changed and not the rule. A replay of what was counted under the same rule finds
    what was found before, so it is never stopped.

    Raises:
        MalformedFloodError: With the share; nothing is committed.
    """
    pipeline = ctx.settings.pipeline(batch.pipeline)
    read = Understood.of(sum(counts.totals.values(), EMPTY_TOTALS))
    if read.records < ENOUGH_RECORDS or read.ratio <= pipeline.max_malformed_ratio:
        return
    with ctx.database.transaction(read_only=True) as tx:
        if _is_trusted(tx, pipeline, batch, read):
            return
    if not read.lines:
        raise MalformedFloodError(
            f"pipeline {pipeline.name}: none of {read.records} records begins a line, so "
            f'continuation_lines = "unmatched" would leave all of them out: {pipeline.rules}',
            next_step=f"{find_format(pipeline)}, or leave continuation_lines out, or set "
            f"max_malformed_ratio = 1 if they are continuation lines, then tally run "
            f"{batch.batch_id}",
        )
    raise MalformedFloodError(
        f"pipeline {pipeline.name}: {read.malformed} of {read.lines} records are malformed, a "
        f"larger share than max_malformed_ratio = {pipeline.max_malformed_ratio:g}; these rules "
        f"have not yet read {ENOUGH_RECORDS} records within it: {pipeline.rules}",
        next_step=f"{find_format(pipeline)}, or raise max_malformed_ratio, then tally run "
        f"{batch.batch_id}",
    )


def _is_trusted(tx: Transaction, pipeline: Pipeline, batch: Batch, read: Understood) -> bool:
    if batch.kind is BatchKind.REPLAY and replaces_only(tx, batch.batch_id, fingerprint(pipeline)):
        return True
    return read.lines > 0 and records_in_sound_batches(tx, pipeline) >= ENOUGH_RECORDS


def check_still_served(ctx: Context, batch: Batch) -> None:
    """Raise unless Kafka still serves the topics and ranges that were planned.

    Called after the read. A topic id that is unchanged now was unchanged during the read, because
    Kafka never reuses one. A dense range was read whole if its offsets are complete, so it may be
    deleted by now. Of a sparse range Kafka must still hold the first offset: otherwise records may
    have been deleted before the read.

    Raises:
        DataLossError: The topic was created again, or a sparse range is no longer held.
    """
    pipeline = ctx.settings.pipeline(batch.pipeline)
    topics = sorted({segment.range.partition.topic for segment in batch.segments})
    for tries_left in reversed(range(ctx.patience.doubt_tries)):
        snapshot = ctx.kafka.snapshot(topics, read_committed=pipeline.reads_committed)
        causes = unreadable(batch.segments, snapshot, still_held=pipeline.is_sparse)
        if not causes:
            return
        if tries_left:
            ctx.clock.sleep(ctx.patience.doubt_pause_s)
    raise DataLossError(
        f"batch {batch.batch_id}: Kafka no longer holds what was planned: {'; '.join(causes)}",
        next_step=f"tally plan {pipeline.name} abandons the batch and plans what is left",
    )


def check_no_record_lost(
    ctx: Context, batch: Batch, totals: Mapping[TopicPartition, SegmentTotals]
) -> None:
    """Raise unless a replay has read at least the records that its replaced segments counted.

    Where all of these were counted with records of aborted transactions, which today's rules leave
    out and which are the only difference of the rules, fewer records are what was asked for; but
    not of a compacted topic, where they may have been removed since.

    Raises:
        DataLossError: Fewer records were read than were counted before, as after a compaction.
    """
    fewer = [
        f"{segment.range}: {read} records, {segment.records_replaced} were counted"
        for segment in batch.segments
        for read in [totals[segment.range.partition].records]
        # Each offset that was never counted may hold one of the records that were read.
        if segment.records_replaced > 0
        and read - (segment.range.offsets - segment.offsets_replaced) < segment.records_replaced
    ]
    if fewer and not _leaves_out_aborted(ctx, batch):
        raise DataLossError(
            f"batch {batch.batch_id}: Kafka holds less than what it would replace: "
            + "; ".join(fewer)
        )


def _leaves_out_aborted(ctx: Context, batch: Batch) -> bool:
    pipeline = ctx.settings.pipeline(batch.pipeline)
    if not pipeline.reads_committed:
        return False
    rights = ctx.kafka.rights({segment.range.partition.topic for segment in batch.segments})
    if not rights or any(of.compacted is not False for of in rights.values()):
        return False
    uncommitted = pipeline.model_copy(update={"isolation_level": "read_uncommitted"})
    with ctx.database.transaction(read_only=True) as tx:
        return replaces_only(tx, batch.batch_id, fingerprint(uncommitted))
