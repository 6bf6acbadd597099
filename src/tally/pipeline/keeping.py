"""Keeping lines: what a Spark task does with the lines that it counts, one range to one set."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tally.aggregates.counts import CountRequest
from tally.deliveries.row_store import RowStore
from tally.errors import StatementError
from tally.model import KeptLine, RowSet, TopicPartition
from tally.pipeline.context import Context, OpenContext
from tally.pipeline.publish import store_of

_ROWS_AT_ONCE: Final = 5_000
_BYTES_AT_ONCE: Final = 8 * 2**20

# Escaping may double a value; the statement has words of its own.
_ESCAPED: Final = 2
_WORDS: Final = 1_024


@dataclass(frozen=True, slots=True)
class KeepInTask:
    """Opens the set of a segment in the Spark task that reads it; picklable."""

    open_context: OpenContext
    """Makes a context in the executor."""

    def __call__(self, request: CountRequest) -> "KeptSet":
        """A set for the request's only range."""
        return keep(self.open_context(), request)


def keep(ctx: Context, request: CountRequest) -> "KeptSet":
    """Open the set of a request's only range.

    Raises:
        FencedError: A newer attempt has begun.
    """
    store = store_of(ctx, request.pipeline)
    if store is None or request.batch is None:
        raise ValueError("a request whose lines are not kept")
    store.check()
    (segment,) = request.batch.segments
    return KeptSet(
        store, segment.range.partition, store.packet_bytes(), store.open_set(request.batch, segment)
    )


@dataclass(slots=True)
class KeptSet:
    """The set that a task writes; a part of the lines is in memory."""

    _store: RowStore
    _partition: TopicPartition
    _packet_bytes: int
    _set_id: int
    _lines: list[KeptLine] = field(default_factory=list)
    _bytes: int = 0
    _rows: int = 0

    def add(self, lines: Iterable[KeptLine]) -> None:
        """Write lines, some of them later.

        Raises:
            FencedError: A newer attempt has begun.
            StatementError: A line is longer than the server takes.
        """
        for line in lines:
            self._check_length(line)
            self._lines.append(line)
            self._bytes += len(line.value or b"")
            if len(self._lines) >= _ROWS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
                self._write()

    def seal(self) -> RowSet:
        """Write what is left; the set then has all lines of its segment.

        Raises:
            FencedError: A newer attempt has begun.
            DataLossError: Rows are missing.
        """
        self._write()
        return self._store.seal(self._set_id, self._rows)

    def _check_length(self, line: KeptLine) -> None:
        """Raise before the server ends the connection, which would look as if it were down."""
        needed = _ESCAPED * len(line.value or b"") + _WORDS
        if needed > self._packet_bytes:
            raise StatementError(
                f"the record at offset {line.offset} of {self._partition} has "
                f"{len(line.value or b''):,} bytes and may need {needed:,} in a statement; "
                f"max_allowed_packet of the server of {self._store.view} is {self._packet_bytes:,}",
                next_step="raise max_allowed_packet on that server, and run it again",
            )

    def _write(self) -> None:
        if self._lines:
            self._store.write(self._set_id, self._lines)
            self._rows += len(self._lines)
            self._lines, self._bytes = [], 0
