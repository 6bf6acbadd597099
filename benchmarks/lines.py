"""Lines of a log whose counts are known, and writing them to a topic."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from confluent_kafka import Producer

from benchmarks.servers import Bench

LINES_PER_MINUTE = 10_000
LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR", "INFO", "INFO", "DEBUG", "INFO")
SERVICES = tuple(f"svc-{number}" for number in range(8))
BYTES = 71
_CHUNK = 10_000
_QUEUED_MAX = 500_000
_FIRST = datetime(2026, 1, 1)  # noqa: DTZ001 - the lines' own clock has no zone


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a topic holds."""

    lines: int
    """All of them."""
    partitions: int
    """Over which they are spread evenly."""
    errors: dict[str, int]
    """Lines of the level ERROR by minute, ``YYYY-MM-DD HH:MM``."""

    @property
    def ranges(self) -> list[tuple[int, int, int]]:
        """Each partition with its first offset and the one behind its last."""
        counts = Counter[int]()
        for number, first in enumerate(range(0, self.lines, _CHUNK)):
            counts[number % self.partitions] += min(_CHUNK, self.lines - first)
        return [(partition, 0, counts[partition]) for partition in range(self.partitions)]

    def check(self, name: str, counts: Mapping[str, int]) -> None:
        """Raise unless somebody has counted what was written.

        Args:
            name: Of who has counted.
            counts: By minute, of which the first 16 characters count.

        Raises:
            RuntimeError: They have not.
        """
        if {minute[:16]: count for minute, count in counts.items()} != self.errors:
            raise RuntimeError(f"{name} has not counted what was written")

    @property
    def ends(self) -> dict[int, int]:
        """The offset behind the last line of each partition."""
        return {partition: end for partition, _, end in self.ranges}


def write_lines(
    servers: Bench, lines: int, partitions: int, *, topic: str | None = None
) -> Written:
    """Write so many lines of the fixed layout to a topic, the bench's own by default."""
    errors: Counter[str] = Counter()
    with producer(servers) as kafka:
        for first in range(0, lines, _CHUNK):
            minute = _FIRST + timedelta(minutes=first // LINES_PER_MINUTE)
            count = min(_CHUNK, lines - first)
            values = [_line(minute, first + n) for n in range(count)]
            errors[f"{minute:%Y-%m-%d %H:%M}"] += sum(b" ERROR " in v[:26] for v in values)
            messages = [{"value": value} for value in values]
            partition = (first // _CHUNK) % partitions
            if kafka.produce_batch(topic or servers.topic, messages, partition=partition) != count:
                raise RuntimeError("the producer's queue is full")
            while len(kafka) > _QUEUED_MAX:
                kafka.poll(0.1)
    return Written(lines=lines, partitions=partitions, errors=dict(errors))


@contextmanager
def producer(servers: Bench) -> Iterator[Producer]:
    """A producer for many lines; they have arrived at the end of the ``with`` block."""
    kafka = Producer(
        {
            "bootstrap.servers": servers.settings.kafka.bootstrap_servers,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    yield kafka
    if left := kafka.flush(120):
        raise RuntimeError(f"{left} lines have not arrived")


def _line(minute: datetime, number: int) -> bytes:
    level = LEVELS[number % len(LEVELS)]
    service = SERVICES[number // 7 % len(SERVICES)]
    text = f"{minute:%Y-%m-%d %H:%M}:{number % 60:02} {level} [{service}] request {number:012}"
    return text.ljust(BYTES).encode()
