"""A writer of records that needs no Kafka."""

from collections import Counter
from collections.abc import Callable

from tally.model import TopicPartition


class MemoryWriter:
    """Keeps every record, and reports it as delivered at once; for one thread at a time.

    Offsets of each partition begin at 0. No write fails.
    """

    def __init__(self) -> None:
        self.records: list[tuple[TopicPartition, bytes | None]] = []
        """Partition and value of each record, in the order in which they came."""
        self._ends: Counter[TopicPartition] = Counter()

    def write(
        self,
        partition: TopicPartition,
        value: bytes | None,
        delivered: Callable[[int], None],
        failed: Callable[[str], None],  # noqa: ARG002 - the port's signature
    ) -> None:
        """Keep the record."""
        self.records.append((partition, value))
        self._ends[partition] += 1
        delivered(self._ends[partition] - 1)

    def flush(self) -> None:
        """Return at once: every record was delivered when it was written."""
