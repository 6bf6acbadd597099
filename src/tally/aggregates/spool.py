"""The spool: rows between the read and the commit, in memory while few, in a file when many.

A read is finished and checked before the transaction begins. The rows that were checked are the
rows that are committed, also when the transaction is run again.
"""

import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, starmap
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

from tally.errors import UnwritableError

T = TypeVar("T")

_PIECES_MAX: Final = 1_000
"""That are merged: each has a part in memory. What comes behind them may be in another order."""

MEMORY_BYTES: Final = 8 * 1024 * 1024
CHUNK: Final = 64
"""Items that are pickled together: what they share, such as their class, is written once."""


class Spool(Generic[T]):
    """A sequence that is written once and iterated as often as needed, in bounded memory.

    Args:
        memory_bytes: How much of it is kept in memory; the rest goes to a file.
        folder: Where the file is; the system's temporary folder when None.
        chunk: Items that are pickled together; fewer where one may be large.
        make: What makes the values that are appended an item, each time that it is iterated: tuples
            take less time to write than most objects.
        order: By what items are in order when they are iterated; None for as they were appended.
            They are merged, not sorted: append few pieces, each in this order.
    """

    def __init__(
        self,
        memory_bytes: int = MEMORY_BYTES,
        *,
        folder: Path | None = None,
        chunk: int = CHUNK,
        make: Callable[..., T] | None = None,
        order: Callable[[Any], Any] | None = None,
    ) -> None:
        self._folder = folder
        self._chunk = chunk
        self._make = make
        self._order = order
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by close()
            max_size=memory_bytes,
            prefix="tally-spool-",
            dir=None if folder is None else str(folder),
        )
        self._pieces = [[0, 0]]
        """Where each begins in the file, and its chunks."""
        self._length = 0
        self._before: Any = None
        self._last: list[Any] = []
        """The items after the last chunk."""

    def append(self, item: Any) -> None:
        """Add an item at the end, or the values that it is made of.

        Raises:
            UnwritableError: The folder is full, missing or not writable.
        """
        if self._order is not None:
            now = self._order(item)
            is_piece = self._before is not None and now < self._before
            if is_piece and len(self._pieces) < _PIECES_MAX:
                self._dump()
                self._pieces.append([self._file.tell(), 0])
            self._before = now
        self._last.append(item)
        self._length += 1
        if len(self._last) == self._chunk:
            self._dump()

    def _dump(self) -> None:
        try:
            pickle.dump(self._last, self._file, protocol=pickle.HIGHEST_PROTOCOL)
        except OSError as error:
            raise self._unwritable(error) from error
        self._pieces[-1][1] += 1
        self._last = []

    def __iter__(self) -> Iterator[T]:
        """Iterate from the first item; one iteration at a time, and nothing is added meanwhile.

        Raises:
            UnwritableError: As :meth:`Spool.append`; the last chunk may be in a buffer.
        """
        *pieces, last = [self._piece(*piece) for piece in self._pieces]
        pieces.append(chain(last, self._made(self._last)))
        return pieces[0] if self._order is None else merge(*pieces, key=self._order)

    def _piece(self, begins: int, chunks: int) -> Iterator[T]:
        for _ in range(chunks):
            try:
                self._file.seek(begins)
            except OSError as error:
                raise self._unwritable(error) from error
            chunk = pickle.load(self._file)  # noqa: S301 - our own temporary file
            begins = self._file.tell()
            yield from self._made(chunk)

    def _made(self, chunk: Iterable[Any]) -> Iterable[T]:
        return chunk if self._make is None else starmap(self._make, chunk)

    def __len__(self) -> int:
        return self._length

    def close(self) -> None:
        """Release the memory or the file."""
        try:
            self._file.close()
        except OSError:
            # What could not be written is not needed any more.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _unwritable(self, error: OSError) -> UnwritableError:
        folder = self._folder or Path(tempfile.gettempdir())
        written = _mebibytes(self._file.tell())
        return UnwritableError(
            f"the counts of the batch do not fit into {folder}: {error.strerror} after "
            f"{len(self):,} rows of {written}, {_free(folder)}; nothing was committed",
            next_step=f"free more than {written} in {folder}, or set spark.spool_dir to a folder "
            "that has more",
        )


def _mebibytes(count: int) -> str:
    return f"{count / 1024 / 1024:,.0f} MiB"


def _free(folder: Path) -> str:
    try:
        return f"{_mebibytes(shutil.disk_usage(folder).free)} free"
    except OSError as error:
        return str(error.strerror)
