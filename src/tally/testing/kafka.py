"""A Kafka whose first answers a test can change or delay."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from tally.context import KafkaPort
from tally.model import KafkaSnapshot, Record, TopicPartition, TopicRights

Alter = Callable[[KafkaSnapshot], KafkaSnapshot]
"""Takes Kafka's snapshot; returns the snapshot that is answered."""


def _unchanged(snapshot: KafkaSnapshot) -> KafkaSnapshot:
    return snapshot


class DisturbedKafka:
    """Delegates to another Kafka, and disturbs its first snapshots.

    Args:
        kafka: The Kafka that is asked.
        before: Called before a disturbed snapshot is taken, in the thread that asks.
        alter: Changes the answer of a disturbed snapshot.
        times: How many snapshots are disturbed, from the first one on.
    """

    def __init__(
        self,
        kafka: KafkaPort,
        *,
        before: Callable[[], None] = lambda: None,
        alter: Alter = _unchanged,
        times: int = 1,
    ) -> None:
        self._kafka = kafka
        self._before, self._alter, self._times = before, alter, times
        self.snapshots = 0
        """How many snapshots were asked for."""

    def snapshot(self, topics: Iterable[str], *, read_committed: bool = True) -> KafkaSnapshot:
        """The other Kafka's answer, altered while snapshots are disturbed."""
        self.snapshots += 1
        if self.snapshots > self._times:
            return self._kafka.snapshot(topics, read_committed=read_committed)
        self._before()
        return self._alter(self._kafka.snapshot(topics, read_committed=read_committed))

    def offsets_at(
        self, partitions: Iterable[TopicPartition], moment: datetime
    ) -> Mapping[TopicPartition, int | None]:
        """The other Kafka's answer."""
        return self._kafka.offsets_at(partitions, moment)

    def records_at(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        records_max: int = 1,
        read_committed: bool = True,
    ) -> Mapping[TopicPartition, Sequence[Record]]:
        """The other Kafka's answer."""
        return self._kafka.records_at(
            offsets, records_max=records_max, read_committed=read_committed
        )

    def retention(self, topics: Iterable[str]) -> Mapping[str, timedelta | None]:
        """The other Kafka's answer."""
        return self._kafka.retention(topics)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], note: str = ""
    ) -> None:
        """Passed on to the other Kafka."""
        self._kafka.commit_offsets(group, offsets, note)

    def notes_of(self, group: str) -> Mapping[TopicPartition, str]:
        """The other Kafka's answer."""
        return self._kafka.notes_of(group)

    def rights(self, topics: Iterable[str]) -> Mapping[str, TopicRights]:
        """The other Kafka's answer."""
        return self._kafka.rights(topics)


class FixedKafka:
    """A Kafka that is nothing but one snapshot, for plans over more partitions than a broker has.

    Args:
        held: What every snapshot answers.
    """

    def __init__(self, held: KafkaSnapshot) -> None:
        self._held = held

    def snapshot(self, topics: Iterable[str], *, read_committed: bool = True) -> KafkaSnapshot:  # noqa: ARG002
        """The one snapshot."""
        return self._held

    def offsets_at(
        self,
        partitions: Iterable[TopicPartition],
        moment: datetime,  # noqa: ARG002
    ) -> Mapping[TopicPartition, int | None]:
        """No record is as young."""
        return dict.fromkeys(partitions)

    def records_at(
        self,
        offsets: Mapping[TopicPartition, int],  # noqa: ARG002
        *,
        records_max: int = 1,  # noqa: ARG002
        read_committed: bool = True,  # noqa: ARG002
    ) -> Mapping[TopicPartition, Sequence[Record]]:
        """No record is held."""
        return {}

    def retention(self, topics: Iterable[str]) -> Mapping[str, timedelta | None]:
        """Records are kept by size alone."""
        return dict.fromkeys(topics)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], note: str = ""
    ) -> None:
        """Nothing is kept."""

    def notes_of(self, group: str) -> Mapping[TopicPartition, str]:  # noqa: ARG002
        """Nothing was kept."""
        return {}

    def rights(self, topics: Iterable[str]) -> Mapping[str, TopicRights]:  # noqa: ARG002
        """Nothing is known."""
        return {}
