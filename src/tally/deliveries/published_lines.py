"""Kept lines: a transactional batch that also says which set of lines is its segment's."""

from collections.abc import Iterator
from dataclasses import dataclass

from tally.config.pipeline import Pipeline
from tally.deliveries.contract import Result
from tally.deliveries.transactional import TransactionalBatch
from tally.errors import DataLossError
from tally.ledger.invariants import Violation
from tally.ledger.row_sets import record_row_set
from tally.ledger.tables import Tables
from tally.model import Batch
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, slots=True)
class PublishedLines:
    """Counts as :class:`TransactionalBatch` commits them, and the lines behind them.

    The lines are safe before the commit (:class:`tally.deliveries.set_store.SetStore`), and are
    shown to readers after it (:mod:`tally.pipeline.publish`).
    """

    pipeline: Pipeline
    """Its settings."""

    def commit(self, tx: Transaction, batch: Batch, result: Result) -> bool:
        """Commit the counts of a batch's only segment, and its set of lines with them.

        Raises:
            DataLossError: There is no set, or it has not the lines that were counted.
            TallyError: As :meth:`TransactionalBatch.commit`. Nothing is changed.
        """
        if not TransactionalBatch(self.pipeline).commit(tx, batch, result):
            return False
        (totals,) = result.totals.values()
        if result.row_set is None:
            raise DataLossError(
                f"batch {batch.batch_id}: its lines were counted, and not kept",
                next_step=f"tally run {batch.batch_id}",
            )
        record_row_set(tx, batch, totals, result.row_set)
        return True

    def violations(self, tx: Transaction, tables: Tables) -> Iterator[Violation]:
        """Those of the counts; :func:`tally.pipeline.publish.row_violations` has the lines'."""
        yield from TransactionalBatch(self.pipeline).violations(tx, tables)
