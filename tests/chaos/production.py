"""Lines that carry their own number, so that each can be missed, or seen twice, by itself.

Most ERROR lines have a minute of their own, made of partition and number: its count must be one. It
is long ago, so that each of them changes a minute that is complete, as late lines do. The others
share the minute in which they were written, as the lines of real services do. What is
known here comes from the lines that were made and from Kafka's acknowledgements alone.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from tally.config.servers import KafkaSettings
from tally.model import TopicPartition
from tally_local.demo.writer import LineWriter

TICK_S = 0.1
FIRST_YEAR = 1900
SHARED_YEAR = 2000
"""Minutes from then on may be shared."""
QUIET_YEAR = 1600
YEARS = 12
"""Years of own minutes for each of eight partitions: six million minutes."""


class Kind(IntEnum):
    """The kind of a line, as it is to be counted."""

    OWN = 0  # an ERROR line with a minute of its own
    SHARED = 1  # an ERROR line of the moment in which it is written
    QUIET = 2  # a line of another level, which must not be counted
    MALFORMED = 3  # a malformed record; its bytes must be kept


WEIGHTS = (40, 10, 48, 2)


def own_minute(partition: int, number: int) -> datetime:
    return datetime(FIRST_YEAR + YEARS * partition, 1, 1) + timedelta(minutes=number)  # noqa: DTZ001 - a line's time has no zone


def owner_of(minute: datetime) -> tuple[int, int] | None:
    """Partition and number of the line that owns a minute; None if no line does."""
    is_own = FIRST_YEAR <= minute.year < SHARED_YEAR
    if not is_own or minute.second or minute.microsecond:
        return None
    partition = (minute.year - FIRST_YEAR) // YEARS
    return partition, int((minute - own_minute(partition, 0)) / timedelta(minutes=1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Produced:
    """What was written and acknowledged so far."""

    kinds: dict[int, bytes]
    """By partition, the kind of each line, in the order of their numbers."""
    shared: Counter[datetime]
    """ERROR lines in the minutes that lines share."""

    @property
    def lines(self) -> int:
        """All lines."""
        return sum(map(len, self.kinds.values()))

    def minutes(self) -> Iterator[datetime]:
        """The minutes that must count exactly one line each."""
        for partition, kinds in self.kinds.items():
            for number, kind in enumerate(kinds):
                if kind == Kind.OWN:
                    yield own_minute(partition, number)

    def malformed(self) -> Iterator[bytes]:
        """The bytes that must be kept."""
        for partition, kinds in self.kinds.items():
            for number, kind in enumerate(kinds):
                if kind == Kind.MALFORMED:
                    yield malformed(partition, number)


def malformed(partition: int, number: int) -> bytes:
    """A record that is malformed in every line format."""
    return b"\xfe no line: partition %d, number %d" % (partition, number)


class Production(threading.Thread):
    """A thread that writes about ``rate`` lines a second to all partitions there are."""

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        *,
        partitions: int,
        rate: int,
        seed: int,
        open_writer: Callable[[KafkaSettings], LineWriter] = LineWriter,
    ) -> None:
        super().__init__(name="production", daemon=True)
        self._kafka, self._topic = kafka, topic
        self._open_writer = open_writer
        self._writers = [open_writer(kafka)]
        self._random = random.Random(seed)
        self._per_tick = max(1, round(rate * TICK_S))
        self._kinds: dict[int, bytearray] = {n: bytearray() for n in range(partitions)}
        self._shared: Counter[datetime] = Counter()
        self._delivered = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._failures: list[str] = []

    def use_partition(self, number: int) -> None:
        """Write to a partition that was added, too."""
        # A producer refreshes its metadata of a known topic only after minutes.
        writer = self._open_writer(self._kafka)
        with self._lock:
            self._writers.append(writer)
            self._kinds[number] = bytearray()

    def close(self) -> Produced:
        """Write no more, wait for Kafka's last answer, and say what was written."""
        self._stopping.set()
        self.join()
        produced = self.so_far()
        assert not self._failures, f"a line was not delivered: {self._failures[0]}"
        assert self._delivered == produced.lines, "Kafka has not answered for every line"
        return produced

    def abort(self) -> None:
        """Write no more."""
        self._stopping.set()

    def so_far(self) -> Produced:
        """The lines that were handed to the writer so far."""
        with self._lock:
            kinds = {number: bytes(kinds) for number, kinds in self._kinds.items()}
            return Produced(kinds=kinds, shared=self._shared.copy())

    def run(self) -> None:
        """Write until it is told to stop."""
        try:
            while not self._stopping.is_set():
                begun = time.monotonic()
                for _ in range(self._per_tick):
                    self._write_one()
                self._stopping.wait(max(0.0, TICK_S - (time.monotonic() - begun)))
            for writer in self._writers:
                writer.flush()
        except Exception as error:
            self._failures.append(repr(error))
            raise

    def _write_one(self) -> None:
        kind = Kind(self._random.choices(range(len(WEIGHTS)), WEIGHTS)[0])
        now = datetime.now(UTC).replace(tzinfo=None)
        with self._lock:
            partition = self._random.choice(sorted(self._kinds))
            number = len(self._kinds[partition])
            self._kinds[partition].append(kind)
            if kind is Kind.SHARED:
                self._shared[now.replace(second=0, microsecond=0)] += 1
            writer = self._writers[-1]
        where = TopicPartition(topic=self._topic, partition=partition)
        value = _value(kind, partition, number, now)
        writer.write(where, value, self._on_delivered, self._failures.append)

    def _on_delivered(self, _: int) -> None:
        self._delivered += 1


def _value(kind: Kind, partition: int, number: int, now: datetime) -> bytes:
    if kind is Kind.MALFORMED:
        return malformed(partition, number)
    time_of_line = own_minute(partition, number) if kind is Kind.OWN else now
    level = "INFO" if kind is Kind.QUIET else "ERROR"
    if kind is Kind.QUIET:
        time_of_line = time_of_line.replace(year=QUIET_YEAR)
    stamp = f"{time_of_line:%Y-%m-%d %H:%M}:{number % 60:02}"
    return f"{stamp} {level} partition {partition}, number {number}".encode()
