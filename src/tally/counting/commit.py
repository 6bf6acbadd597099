"""Committing a batch exactly once: one transaction, whose steps are those of docs/exactly-once.md.

:mod:`tally.ledger.commit` has what fences and compares; here is the order, and what is asked when
the answer to COMMIT is lost.
"""

from collections.abc import Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any, Final

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import Counts
from tally.config.pipeline import Pipeline
from tally.context import Context, Transaction
from tally.deliveries.contract import Delivery
from tally.deliveries.kept_lines import delivery_of
from tally.errors import SchemaError
from tally.ledger import commit as steps
from tally.ledger import contributions, progress
from tally.ledger.batches import find_batch, settle_replay
from tally.ledger.dead_letters import replace_dead_letters
from tally.ledger.erasures import erase_letters_of
from tally.ledger.line_sets import check_lines
from tally.ledger.tables import Tables, check_tables, tables_of
from tally.model import Batch, BatchKind

ROWS_WATCHED: Final = 8
"""Rows of a batch by which a commit sees that something else writes into the result, too."""


def commit_once(
    ctx: Context, batch: Batch, counts: Counts, read_at: datetime | None = None
) -> bool:
    """Commit the batch; when the answer to COMMIT is lost, ask the ledger whether it was applied.

    Args:
        ctx: What is needed from outside.
        batch: The batch as it was claimed.
        counts: What was read, already checked.
        read_at: When the read had ended, in UTC; None where that is not known.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        FencedError: A newer attempt owns the batch, or it was abandoned.
        MySQLUnavailableError: The connection broke at every COMMIT, and the ledger says that none
            was applied.
        OutcomeUnknownError: The ledger could not be asked in time.
        TallyError: As :func:`commit_in`.
    """
    delivery = delivery_of(ctx, ctx.settings.pipeline(batch.pipeline))

    def ask(tx: Transaction) -> bool | None:
        if steps.lock_attempt(tx, batch):
            return None  # it was rolled back, and the batch is still ours
        # False when another attempt has committed it since.
        return find_batch(tx, batch.batch_id).claim == batch.claim

    return ctx.database.run_answered(
        lambda tx: commit_in(tx, delivery, batch, counts, read_at),
        ask,
        what=f"batch {batch.batch_id}",
        next_step=f"tally run {batch.batch_id} once MySQL answers; it is safe",
        within_s=ctx.patience.outcome_s,
        pause_s=ctx.patience.doubt_pause_s,
    )


def commit_in(
    tx: Transaction,
    delivery: Delivery,
    batch: Batch,
    counts: Counts,
    read_at: datetime | None = None,
) -> bool:
    """Make a batch's contributions part of the result, and move offsets or replace old counts.

    Steps, all in the caller's transaction at READ COMMITTED, which is run again from its start when
    the server has rolled it back:

    1. lock the batch's row; it must be planned and of our attempt,
    2. ingest: move every partition's committed offset from its segment's start to its end, or none;
       replay: supersede every segment that it was planned to replace, or none,
    3. write the contributions, and add to the result what they differ by from those they replace,
    4. write the dead letters, without the text of what was erased, and delete those of replaced
       segments,
    5. mark the segments live and the batch committed; kept lines must be safe by then,
    6. record which complete minutes have changed, and which are complete now.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        ConfigError: The pipeline counts into another table, or keeps its lines elsewhere.
        SchemaError: A label has no column yet, or something else, such as a trigger, changes what
            is written into the result.
        FencedError: A newer attempt owns the batch, it was abandoned, a partition's committed
            offset is not the batch's first, or another replay came first.
        DataLossError: What is about to be committed does not add up. Nothing is changed by any.
    """
    # 1
    if not steps.lock_attempt(tx, batch):
        return False
    pipeline = delivery.pipeline
    tables = tables_of(tx, batch.pipeline)
    check_tables(tx, tables, pipeline)
    check_lines(tx, tables, pipeline)
    rows = _rows(batch, pipeline, tables, counts)
    watched = list(islice(rows, ROWS_WATCHED))
    before = contributions.surplus(tx, tables, batch.pipeline, watched)
    # 2
    if batch.kind is BatchKind.INGEST:
        steps.move_offsets(tx, batch)
    else:
        steps.supersede(tx, batch)
    # 3
    contributions.insert_contributions(tx, tables, chain(watched, rows))
    contributions.add_to_result(tx, tables, batch.batch_id)
    if batch.kind is BatchKind.REPLAY:
        contributions.take_from_result(tx, tables, batch.batch_id)
    # 4
    replace_dead_letters(tx, batch, counts.dead_letters)
    erase_letters_of(tx, batch.batch_id)
    # 5
    steps.mark_live(tx, batch, counts.totals)
    steps.check_written(tx, tables, batch.batch_id)
    if contributions.surplus(tx, tables, batch.pipeline, watched) != before:
        raise SchemaError(
            f"batch {batch.batch_id}: {tables.result} gains other sums than were counted: "
            "something else, such as a trigger, changes what is written into it",
            next_step=f"drop what the statement show triggers like '{tables.result}' lists in "
            "MySQL; nothing was committed, and the next run counts",
        )
    delivery.commit(tx, batch, counts)
    steps.mark_committed(tx, batch, pipeline, delivery.ctx.requester.version, read_at)
    if batch.replay_id is not None:
        settle_replay(tx, batch.replay_id)
    # 6
    progress.amend(tx, tables, batch)
    progress.advance(tx, pipeline, plans=False)
    return True


def _rows(
    batch: Batch, pipeline: Pipeline, tables: Tables, counts: Counts
) -> Iterator[tuple[Any, ...]]:
    segment_ids = {s.range.partition: s.segment_id for s in batch.segments}
    aggregate = Aggregate.of(pipeline)
    for counted, key, sums in contributions.rows_of(tables, aggregate, counts.contributions):
        yield (segment_ids[counted.partition], *key, *sums)
