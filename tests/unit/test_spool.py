"""The spool: any number of rows in bounded memory."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

from tally.aggregates.spool import Spool
from tally.model import Contribution, TopicPartition

PARTITION = TopicPartition(topic="alog", partition=0)
MEMORY_BYTES = 50_000
MANY = 10_000


def contributions(number: int) -> Iterator[Contribution]:
    """So many distinct minutes."""
    for n in range(number):
        minute = f"{2000 + n // 525_600}-01-01 {n // 60 % 24:02}:{n % 60:02}:00"
        yield Contribution(partition=PARTITION, log_time=minute, log_count=n + 1)


@contextmanager
def peak_bytes() -> Iterator[list[int]]:
    """Peak memory of Python's objects in the block, known after its end."""
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_the_drivers_memory_stays_flat_however_many_rows_there_are() -> None:
    """The rows are in a file and come back one at a time; a list takes many times the memory."""
    with Spool[Contribution](memory_bytes=MEMORY_BYTES) as rows:
        with peak_bytes() as written:
            for row in contributions(MANY):
                rows.append(row)
        with peak_bytes() as read:
            assert sum(row.log_count for row in rows) == MANY * (MANY + 1) // 2
    with peak_bytes() as listed:
        assert len(list(contributions(MANY))) == MANY
    assert written[0] < 6 * MEMORY_BYTES
    assert read[0] < 6 * MEMORY_BYTES
    assert listed[0] > 20 * MEMORY_BYTES


def test_a_spool_can_be_walked_again() -> None:
    """A transaction that is run again writes the same rows."""
    with Spool[Contribution]() as rows:
        for row in contributions(3):
            rows.append(row)
        assert list(rows) == list(rows) == list(contributions(3))
        assert len(rows) == 3
