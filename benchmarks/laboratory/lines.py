"""The lines of the laboratory: each has a minute of its own, so each is known by its count."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from confluent_kafka import Producer

PARTITIONS = 3
PER_BATCH = 200
"""Lines that a batch takes from each partition."""
PER_SMALLER_BATCH = 130
BATCHES = 4
LINES = PARTITIONS * PER_BATCH * BATCHES
_FIRST = datetime(2000, 1, 1)  # noqa: DTZ001 - the lines' own clock has no zone


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the lines."""

    lost: int
    """Lines that are not counted."""
    doubled: int
    """Times that a line is counted besides the first one."""

    def __str__(self) -> str:
        both = ((self.lost, "lost"), (self.doubled, "doubled"))
        return ", ".join(f"{n:,} {what}" for n, what in both if n) or "exact"


def minutes() -> list[str]:
    """The minute of each line, ``YYYY-MM-DD HH:MM:00``."""
    return [f"{_FIRST + timedelta(minutes=n):%Y-%m-%d %H:%M}:00" for n in range(LINES)]


def write(bootstrap_servers: str, topic: str) -> None:
    """Write all lines, in turns to each partition, so that a batch has some of all."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number, minute in enumerate(minutes()):
        value = f"{minute} ERROR line {number}".encode()
        producer.produce(topic, value, partition=number % PARTITIONS)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} lines have not arrived")


def judge(counts: Mapping[str, int]) -> Verdict:
    """Compare counts by minute with the lines that were written.

    Raises:
        ValueError: A minute is counted that no line has.
    """
    expected = set(minutes())
    if invented := sorted(counts.keys() - expected):
        raise ValueError(f"minutes of no line: {invented[:3]}")
    return Verdict(
        lost=sum(not counts.get(minute) for minute in expected),
        doubled=sum(max(0, count - 1) for count in counts.values()),
    )


def counted(rows: Iterable[Mapping[str, object]]) -> dict[str, int]:
    """Rows of ``log_time`` and ``n`` as counts by minute."""
    return {str(row["log_time"]): int(str(row["n"])) for row in rows}
