"""The spool: rows between the read and the commit, in memory while few, in a file when many.

A read is finished and checked before the transaction begins. The rows that were checked are the
rows that are committed, also when the transaction is run again.
"""

import pickle
import tempfile
from collections.abc import Iterator
from typing import Final, Generic, Self, TypeVar

T = TypeVar("T")

MEMORY_BYTES: Final = 8 * 1024 * 1024


class Spool(Generic[T]):
    """A sequence that is written once and iterated as often as needed, in bounded memory.

    Args:
        memory_bytes: How much of it is kept in memory; the rest goes to a file.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by close()
            max_size=memory_bytes, prefix="tally-spool-"
        )
        self._length = 0

    def append(self, item: T) -> None:
        """Add an item at the end."""
        pickle.dump(item, self._file, protocol=pickle.HIGHEST_PROTOCOL)
        self._length += 1

    def __iter__(self) -> Iterator[T]:
        """Iterate from the first item; one iteration at a time."""
        self._file.seek(0)
        for _ in range(self._length):
            yield pickle.load(self._file)  # noqa: S301 - our own temporary file

    def __len__(self) -> int:
        return self._length

    def close(self) -> None:
        """Release the memory or the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
