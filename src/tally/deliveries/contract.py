"""The contract of a delivery: what more than sums reaches readers, and how exactly once.

The sums of every pipeline are committed with the offsets (:mod:`tally.counting.commit`). A delivery
adds to that what its readers see besides: what must be safe before offsets move, how a replay
replaces it, and what the audit can prove of it. A pipeline's is chosen by
:func:`tally.deliveries.kept_lines.delivery_of`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tally.aggregates.counts import CountRequest, Counts, LineSet
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.deliveries.set_tables import SetPlace
from tally.errors import TallyError
from tally.ledger.invariants import Violation
from tally.model import Batch
from tally.mysql.transactions import Transaction

if TYPE_CHECKING:  # lines are kept in Spark tasks alone
    import pyarrow as pa


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
    def open_set(self) -> Callable[[CountRequest], "LineWriter"] | None:
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

        Safe at any time, by several processes at once: the next plan or audit does it when a
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


class LineWriter(ABC):
    """Writes the set of a segment, in the Spark task that reads it; a part is in memory.

    Args:
        store: The sets of the pipeline (:class:`tally.deliveries.set_store.SetStore`).
        place: The set, which is open.
    """

    lines_at_once: ClassVar[int]
    """With as many lines :meth:`write` is called at the latest."""
    bytes_at_once: ClassVar[int]
    """With as many bytes :meth:`write` is called, at the end of a slice of the lines."""

    def __init__(self, store: Any, place: SetPlace) -> None:
        self._store, self._place = store, place
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = self._written = 0

    def add(self, lines: "pa.RecordBatch") -> None:
        """Write lines, some of them later.

        Args:
            lines: The columns :data:`tally.aggregates.counts.KEPT`, in order of offset.

        Raises:
            FencedError: A newer attempt has begun.
            StatementError: A line is longer than the server takes.
        """
        for first in range(0, lines.num_rows, self.lines_at_once):
            some = lines.slice(first, self.lines_at_once)
            self._waiting.append(some)
            self._rows += some.num_rows
            self._bytes += some.nbytes
            if self._rows >= self.lines_at_once or self._bytes >= self.bytes_at_once:
                with self._discarded():
                    self._flush()

    def seal(self) -> LineSet:
        """Write what is left; the set then has all lines of its segment.

        Raises:
            FencedError: A newer attempt has begun.
            DataLossError: Lines are missing.
        """
        with self._discarded():
            self._flush()
            self.close()
            sealed: LineSet = self._store.seal(self._place, self._written)
            return sealed

    @contextmanager
    def _discarded(self) -> Iterator[None]:
        """Delete what was written when it fails: it may be much, and the disk full."""
        try:
            yield
        except Exception:
            with suppress(TallyError):  # the first error is the one to report
                self.discard()
            raise

    def _flush(self) -> None:
        if self._rows:
            self.write(self._waiting)
            self._written += self._rows
            self._waiting, self._rows, self._bytes = [], 0, 0

    @abstractmethod
    def write(self, lines: "Sequence[pa.RecordBatch]") -> None:
        """Write some lines, in order of offset.

        Raises:
            FencedError: The set was dropped. Files find it only when the set is sealed.
            StatementError: A line is longer than the server takes.
        """

    def close(self) -> None:  # noqa: B027
        """Make what was written safe, before the set is sealed."""

    def discard(self) -> None:  # noqa: B027
        """Delete what was written, as the set was dropped, and may be forgotten already."""
