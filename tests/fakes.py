"""What a test hands in instead of a clock, a Kafka or a listener of statements."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Semaphore

from tally.clock import Clock
from tally.kafka.client import Kafka
from tally.lines.reading import Record
from tally.model import KafkaSnapshot, TopicPartition, TopicRights


class ManualClock(Clock):
    """A clock that stands still until a test, or a sleep, moves it.

    Args:
        now: The initial time; the machine's time when None.
    """

    def __init__(self, now: datetime | None = None) -> None:
        self._now = now or Clock().now()
        self._monotonic = 0.0

    def now(self) -> datetime:
        """The time that was set, plus the seconds slept."""
        return self._now

    def monotonic(self) -> float:
        """Seconds slept so far."""
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        """Advance both clocks at once, without waiting."""
        self._monotonic += seconds
        self._now += timedelta(seconds=seconds)

    def jump(self, by: timedelta) -> None:
        """Move the wall clock, as setting it does; the monotonic clock does not change."""
        self._now += by


class DisturbedKafka(Kafka):
    """Delegates to another Kafka, and disturbs its first snapshots.

    Args:
        kafka: The Kafka that is asked.
        before: Called before a disturbed snapshot is taken, in the thread that asks.
        alter: Changes the answer of a disturbed snapshot.
        times: How many snapshots are disturbed, from the first one on.
    """

    def __init__(
        self,
        kafka: Kafka,
        *,
        before: Callable[[], None] = lambda: None,
        alter: Callable[[KafkaSnapshot], KafkaSnapshot] = lambda snapshot: snapshot,
        times: int = 1,
    ) -> None:
        self.__dict__.update(vars(kafka))
        self._before, self._alter, self._times = before, alter, times
        self.snapshots = 0
        """How many snapshots were asked for."""

    def snapshot(self, topics: Iterable[str], *, read_committed: bool = True) -> KafkaSnapshot:
        """The other Kafka's answer, altered while snapshots are disturbed."""
        self.snapshots += 1
        if self.snapshots > self._times:
            return super().snapshot(topics, read_committed=read_committed)
        self._before()
        return self._alter(super().snapshot(topics, read_committed=read_committed))


class FixedKafka(Kafka):
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
        bytes_max: int | None = None,  # noqa: ARG002
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


def at_statement(pattern: str, do: Callable[[], None], *, times: int = 1) -> Callable[[str], None]:
    """A listener for :class:`tally.mysql.transactions.Database` that acts before a statement.

    Args:
        pattern: A regular expression that is searched in the statement's text, without parameters;
            a statement with many rows counts even if there are none.
        do: Called before the statement is sent, in the thread that sends it; an exception ends the
            transaction.
        times: How many matching statements it acts on, from the first one, in all threads
            together.
    """
    left = Semaphore(times)

    def listen(statement: str) -> None:
        if re.search(pattern, statement) and left.acquire(blocking=False):
            do()

    return listen
