"""Transactional batches: one MySQL transaction commits the results and the offsets."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from tally.aggregates.aggregate import Aggregate
from tally.config.pipeline import Pipeline
from tally.deliveries.contract import Result
from tally.errors import SchemaError
from tally.ledger.commit import (
    check_written,
    lock_attempt,
    mark_committed,
    mark_live,
    move_offsets,
)
from tally.ledger.contributions import (
    add_to_result,
    insert_contributions,
    rows_of,
    surplus,
    take_from_result,
)
from tally.ledger.dead_letters import replace_dead_letters
from tally.ledger.invariants import RESULT_CHECKS, Violation
from tally.ledger.replay_state import settle_replay
from tally.ledger.row_sets import check_rows_view
from tally.ledger.supersede import supersede
from tally.ledger.tables import Tables, check_tables, tables_of
from tally.model import Batch, BatchKind
from tally.mysql.transactions import Parameters, Transaction

ROWS_WATCHED: Final = 8
"""Rows of a batch by which a commit sees that something else writes into the result, too."""


@dataclass(frozen=True, slots=True)
class TransactionalBatch:
    """Sums per minute and labels, in the database of the ledger.

    See :class:`tally.deliveries.contract.Delivery` for what it guarantees.
    """

    pipeline: Pipeline
    """Its settings: what is counted, and the result table."""

    def commit(self, tx: Transaction, batch: Batch, result: Result) -> bool:
        """Make a batch's contributions part of the result, and move offsets or replace old counts.

        Steps, all in the caller's transaction:

        1. lock the batch's row; it must be planned and of our attempt,
        2. ingest: move every partition's committed offset from its segment's start to its end, or
           none; replay: supersede every segment that it was planned to replace, or none,
        3. write the contributions, and add to the result what they differ by from those they
           replace,
        4. write the dead letters, and delete those of replaced segments,
        5. mark the segments live and the batch committed.

        Returns:
            Whether this call committed it; False when it was committed before.

        Raises:
            ConfigError: The pipeline counts into another table, or keeps its lines elsewhere.
                Nothing is changed.
            SchemaError: A label has no column yet, or something else, such as a trigger, changes
                what is written into the result. Nothing is changed.
            FencedError: A newer attempt owns the batch, it was abandoned, a partition's committed
                offset is not the batch's first, or another replay came first. Nothing is changed.
            DataLossError: What is about to be committed does not add up. Nothing is changed.
        """
        # 1
        if not lock_attempt(tx, batch):
            return False
        tables = tables_of(tx, batch.pipeline)
        check_tables(tx, tables, self.pipeline)
        check_rows_view(tables, self.pipeline)
        rows = self._rows(batch, tables, result)
        watched = list(islice(rows, ROWS_WATCHED))
        before = surplus(tx, tables, batch.pipeline, watched)
        # 2
        if batch.kind is BatchKind.INGEST:
            move_offsets(tx, batch)
        else:
            supersede(tx, batch)
        # 3
        insert_contributions(tx, tables, chain(watched, rows))
        add_to_result(tx, tables, batch.batch_id)
        if batch.kind is BatchKind.REPLAY:
            take_from_result(tx, tables, batch.batch_id)
        # 4
        replace_dead_letters(tx, batch, result.dead_letters)
        # 5
        mark_live(tx, batch, result.totals)
        check_written(tx, tables, batch.batch_id)
        if surplus(tx, tables, batch.pipeline, watched) != before:
            raise SchemaError(
                f"batch {batch.batch_id}: {tables.result} gains other sums than were counted: "
                "something else, such as a trigger, changes what is written into it",
                next_step=f"drop what the statement show triggers like '{tables.result}' lists in "
                "MySQL; nothing was committed, and the next run counts",
            )
        mark_committed(
            tx,
            batch,
            result.version,
            result.format_fingerprint,
            result.read_at,
            dense=not self.pipeline.is_sparse,
        )
        if batch.replay_id is not None:
            settle_replay(tx, batch.replay_id)
        return True

    def violations(self, tx: Transaction, tables: Tables) -> Iterator[Violation]:
        """The result is the sum of the live contributions, and each segment adds up."""
        for check in RESULT_CHECKS:
            yield from check(tx, self.pipeline.name, tables)

    def _rows(self, batch: Batch, tables: Tables, result: Result) -> Iterator[Parameters]:
        segment_ids = {s.range.partition: s.segment_id for s in batch.segments}
        rows = rows_of(tables, Aggregate.of(self.pipeline), result.contributions)
        for counted, key, sums in rows:
            yield (segment_ids[counted.partition], *key, *sums)
