"""What a Spark task does with the lines that it counts: it writes the set of its range."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import ClassVar

from tally.aggregates.counts import KeptLine, LineSet
from tally.deliveries.set_tables import SetPlace
from tally.errors import TallyError


class LineWriter(ABC):
    """Writes the set of a segment, in the Spark task that reads it; a part is in memory.

    Args:
        place: The set, which is open.
        seal: Says that it has all of its lines, so many.
    """

    lines_at_once: ClassVar[int]
    """With as many lines :meth:`write` is called at the latest."""
    bytes_at_once: ClassVar[int]
    """With as many bytes of values :meth:`write` is called at the latest."""

    def __init__(self, place: SetPlace, seal: Callable[[SetPlace, int], LineSet]) -> None:
        self._place, self._seal = place, seal
        self._lines: list[KeptLine] = []
        self._bytes = self._written = 0

    def add(self, lines: Iterable[KeptLine]) -> None:
        """Write lines, some of them later.

        Raises:
            FencedError: A newer attempt has begun.
            StatementError: A line is longer than the server takes.
        """
        for line in lines:
            self._lines.append(line)
            self._bytes += len(line.value or b"")
            if len(self._lines) >= self.lines_at_once or self._bytes >= self.bytes_at_once:
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
            return self._seal(self._place, self._written)

    @contextmanager
    def _discarded(self) -> Iterator[None]:
        """Delete what was written when it fails: it may be much, and the disk full."""
        try:
            yield
        except Exception:
            with suppress(TallyError):  # the first error is the one to be told
                self.discard()
            raise

    def _flush(self) -> None:
        if self._lines:
            self.write(self._lines)
            self._written += len(self._lines)
            self._lines, self._bytes = [], 0

    @abstractmethod
    def write(self, lines: Sequence[KeptLine]) -> None:
        """Write some lines, in order of offset.

        Raises:
            FencedError: The set was dropped. Files find it only when the set is sealed.
            StatementError: A line is longer than the server takes.
        """

    def close(self) -> None:  # noqa: B027
        """Make what was written safe, before the set is sealed."""

    def discard(self) -> None:  # noqa: B027
        """Delete what was written, as the set was dropped, and may be forgotten already."""
