"""The contract of a delivery: how the results of a batch become visible exactly once.

The ledger says how an attempt is fenced (:mod:`tally.ledger.commit`); a delivery says what must be
safe before offsets move, how a replay replaces results, and what the audit can prove of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tally.ledger.invariants import Violation
from tally.ledger.tables import Tables
from tally.model import Batch, Contribution, DeadLetter, RowSet, SegmentTotals, TopicPartition
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a read found; the iterables can be iterated again when the transaction is run again."""

    totals: Mapping[TopicPartition, SegmentTotals]
    """For each planned partition."""
    contributions: Iterable[Contribution]
    """In any order; one for each partition, minute and combination of label values."""
    dead_letters: Iterable[DeadLetter]
    """In any order."""
    version: str
    """Version of the code that counted."""
    format_fingerprint: str
    """Of the rules by which it counted (:func:`tally.aggregates.fingerprint.fingerprint`)."""
    read_at: datetime | None = None
    """When the read had ended, in UTC; None where that is not known."""
    row_set: RowSet | None = None
    """The counted lines, where the pipeline keeps them."""


class Delivery(Protocol):
    """How results are committed with the offsets, replaced by a replay, and verified.

    Guaranteed by every implementation: a reader sees the results of a batch once, or not yet,
    also when processes are killed, retried or run twice; and a fenced attempt changes nothing. Not
    guaranteed: when a result becomes visible within a batch that is being committed.
    """

    def commit(self, tx: Transaction, batch: Batch, result: Result) -> bool:
        """Make the results of a batch visible and move its offsets, or replace what it replaces.

        Args:
            tx: An open transaction of the ledger at READ COMMITTED; run again from its start when
                the server has rolled it back.
            batch: The batch as :func:`tally.ledger.batches.claim` returned it.
            result: What was read, already checked against the plan.

        Returns:
            Whether this call committed it; False when it was committed before.

        Raises:
            FencedError: A newer attempt owns the batch, it was abandoned, a partition's committed
                offset is not the batch's first, or another replay came first.
            DataLossError: What is about to be committed does not add up.
        """

    def violations(self, tx: Transaction, tables: Tables) -> Iterator[Violation]:
        """Every difference between the results and what is kept of them per segment.

        Args:
            tx: A transaction with one consistent snapshot.
            tables: The pipeline's tables.
        """
