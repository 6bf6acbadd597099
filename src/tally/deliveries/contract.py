"""The contract of a delivery: what more than sums reaches readers, and how exactly once.

The sums of every pipeline are committed with the offsets (:mod:`tally.counting.commit`). A delivery
adds to that what its readers see besides: what must be safe before offsets move, how a replay
replaces it, and what the audit can prove of it. A pipeline's is chosen by
:func:`tally.deliveries.kept_lines.delivery_of`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tally.aggregates.counts import CountRequest, Counts
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.ledger.invariants import Violation
from tally.model import Batch
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Delivery:
    """Sums alone: nothing more is delivered. Others override what they add to it.

    Guaranteed by every implementation: a reader sees the results of a batch once, or not yet,
    also when processes are killed, retried or run twice; and a fenced attempt changes nothing. Not
    guaranteed: when a result becomes visible within a batch that is being committed.
    """

    ctx: Context
    """What is needed from outside."""
    pipeline: Pipeline
    """Its settings."""

    @property
    def open_set(self) -> Callable[[CountRequest], Any] | None:
        """Opens what the counted lines of a range are written to in a Spark task; picklable.

        None when they are not kept. It is called for an attempt and sealed before the commit; what
        an attempt has written that is not committed is never shown.
        """
        return None

    def commit(self, tx: Transaction, batch: Batch, counts: Counts) -> None:
        """Decide, in the transaction that commits a batch, what its readers are to see.

        Args:
            tx: The ledger's transaction; the batch's row is locked, so no newer attempt can begin.
            batch: The batch as it was claimed.
            counts: What was read, already checked against the plan.

        Raises:
            FencedError: What was written was dropped meanwhile.
            DataLossError: It is not what was counted.
        """

    def show(self) -> None:
        """Show what committed batches have delivered, and take away what was replaced.

        Safe at any time, by several processes at once: whoever plans or audits next does it when a
        process is killed between its commit and this.

        Raises:
            TallyError: A server did not answer, or its tables are not as they should be.
        """

    def show_soon(self) -> None:
        """The same after a commit; an error is logged, as the next plan shows it."""

    def violations(self) -> list[Violation]:
        """Every segment of which readers see something else than was counted."""
        return []

    def tidy(self) -> None:
        """Delete what killed writers have left; daily."""
