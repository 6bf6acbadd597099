"""Kept lines: each counted line is a row or in a file, exactly once, beside the sums."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tally.aggregates.counts import CountRequest
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.deliveries.contract import Delivery, Result
from tally.deliveries.keeping import KeepInTask
from tally.deliveries.publish import (
    delete_orphans,
    publish,
    publish_soon,
    row_violations,
    store_of,
)
from tally.ledger.invariants import Violation
from tally.ledger.line_sets import record_line_set
from tally.model import Batch
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, slots=True)
class KeptLines(Delivery):
    """Lines are written as a set of one attempt; the ledger says which set readers see.

    The lines are safe before the commit (:class:`tally.deliveries.set_store.SetStore`), and are
    shown to readers after it (:mod:`tally.deliveries.publish`).
    """

    @property
    def open_set(self) -> Callable[[CountRequest], Any] | None:
        """Opens the set of a segment."""
        return KeepInTask(self.ctx.in_task)

    def commit(self, tx: Transaction, batch: Batch, result: Result) -> None:
        """Make the set that was written that of the batch's only segment."""
        record_line_set(tx, batch, result.totals, result.line_set)
        store = store_of(self.ctx, self.pipeline)
        if store is not None and result.line_set is not None:
            store.check_sealed(result.line_set)

    def show(self) -> None:
        """Show the sets of committed segments."""
        publish(self.ctx, self.pipeline)

    def show_soon(self) -> None:
        """Show them, or leave it to the next plan."""
        publish_soon(self.ctx, self.pipeline)

    def violations(self) -> list[Violation]:
        """Every segment whose rows are not the lines that it has counted, by minute."""
        return row_violations(self.ctx, self.pipeline)

    def tidy(self) -> None:
        """Delete files that no set knows."""
        delete_orphans(self.ctx, self.pipeline)


def delivery_of(ctx: Context, pipeline: Pipeline) -> Delivery:
    """The delivery of a pipeline. A new one is added here."""
    return Delivery(ctx, pipeline) if pipeline.rows_view is None else KeptLines(ctx, pipeline)
