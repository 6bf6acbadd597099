"""A writer of records that needs no Kafka."""

from collections import Counter
from collections.abc import Callable

from tally.model import TopicPartition


class MemoryWriter:
    """Keeps every record, and says at once that it was delivered; for one thread at a time.

    Each partition has offsets of its own, from 0 on. Nothing ever fails.
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
        """Nothing is under way."""
