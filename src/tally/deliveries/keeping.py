"""Kept lines: what a Spark task does with the lines that it counts, one range to one set."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tally.aggregates.counts import CountRequest, KeptLine, RowSet
from tally.context import Context, OpenContext
from tally.deliveries.content import LineWriter, SetPlace
from tally.deliveries.publish import store_of
from tally.deliveries.set_store import SetStore
from tally.errors import TallyError


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
    place = store.open_set(request.batch, segment)
    return KeptSet(store, place, store.writer(place))


@dataclass(slots=True)
class KeptSet:
    """The set that a task writes; a part of the lines is in memory."""

    _store: SetStore
    _place: SetPlace
    _writer: LineWriter
    _lines: list[KeptLine] = field(default_factory=list)
    _bytes: int = 0
    _written: int = 0

    def add(self, lines: Iterable[KeptLine]) -> None:
        """Write lines, some of them later.

        Raises:
            FencedError: A newer attempt has begun.
            StatementError: A line is longer than the server takes.
        """
        for line in lines:
            self._lines.append(line)
            self._bytes += len(line.value or b"")
            if (
                len(self._lines) >= self._writer.lines_at_once
                or self._bytes >= self._writer.bytes_at_once
            ):
                with self._discarded():
                    self._write()

    def seal(self) -> RowSet:
        """Write what is left; the set then has all lines of its segment.

        Raises:
            FencedError: A newer attempt has begun.
            DataLossError: Lines are missing.
        """
        with self._discarded():
            self._write()
            self._writer.close()
            return self._store.seal(self._place, self._written)

    @contextmanager
    def _discarded(self) -> Iterator[None]:
        """Delete what was written when it fails: it may be much, and the disk full."""
        try:
            yield
        except Exception:
            with suppress(TallyError):  # the first error is the one to be told
                self._writer.discard()
            raise

    def _write(self) -> None:
        if self._lines:
            self._writer.write(self._lines)
            self._written += len(self._lines)
            self._lines, self._bytes = [], 0
