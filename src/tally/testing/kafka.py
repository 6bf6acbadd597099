"""Kafka, with what a test does to its answers."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from tally.model import KafkaSnapshot, TopicPartition, TopicRights
from tally.pipeline.context import KafkaPort

Alter = Callable[[KafkaSnapshot], KafkaSnapshot]
"""Given what Kafka says; returns what is answered in its place."""


def _as_it_is(snapshot: KafkaSnapshot) -> KafkaSnapshot:
    return snapshot


class DisturbedKafka:
    """Asks another Kafka, and disturbs its first snapshots.

    Args:
        kafka: Who is asked.
        before: Called before a disturbed snapshot is taken, in the thread that asks.
        alter: Makes the answer of a disturbed snapshot.
        times: How many snapshots are disturbed, from the first one on.
    """

    def __init__(
        self,
        kafka: KafkaPort,
        *,
        before: Callable[[], None] = lambda: None,
        alter: Alter = _as_it_is,
        times: int = 1,
    ) -> None:
        self._kafka = kafka
        self._before, self._alter, self._times = before, alter, times
        self.snapshots = 0
        """How many were asked for."""

    def snapshot(self, topics: Iterable[str], *, read_committed: bool = True) -> KafkaSnapshot:
        """The other's answer, or what is made of it."""
        self.snapshots += 1
        if self.snapshots > self._times:
            return self._kafka.snapshot(topics, read_committed=read_committed)
        self._before()
        return self._alter(self._kafka.snapshot(topics, read_committed=read_committed))

    def offsets_at(
        self, partitions: Iterable[TopicPartition], moment: datetime
    ) -> Mapping[TopicPartition, int | None]:
        """The other's answer."""
        return self._kafka.offsets_at(partitions, moment)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """The other mirrors them."""
        self._kafka.commit_offsets(group, offsets)

    def rights(self, topics: Iterable[str]) -> Mapping[str, TopicRights]:
        """The other's answer."""
        return self._kafka.rights(topics)
