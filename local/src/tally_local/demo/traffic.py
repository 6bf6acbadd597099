"""Writes lines as a busy service does, and keeps what the broker acknowledged.

They are those of an access log: levels, bursts of errors, some malformed ones.

What it keeps comes from the lines that it made and from the broker's acknowledgements: neither from
the ledger nor from any other count.
"""

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final, Self

from tally.clock import Clock
from tally.errors import KafkaUnavailableError, StackError
from tally.model import TopicPartition
from tally_local.demo.writer import LineWriter

TICK_S: Final = 0.1
LEVELS: Final = ("INFO", "DEBUG", "WARN", "ERROR", "FATAL")
CALM_WEIGHTS: Final = (70, 15, 9, 5, 1)
BURST_WEIGHTS: Final = (30, 5, 15, 48, 2)
MALFORMED_SHARE: Final = 0.002
BURST_SHARE: Final = 0.05

MESSAGES: Final = {
    "INFO": ("GET /orders/{n} 200 {ms}ms", "POST /login 204 {ms}ms", "GET /health 200 1ms"),
    "DEBUG": ("cache hit orders:{n}", "pool has {n} idle connections"),
    "WARN": ("GET /orders/{n} 429 {ms}ms", "retrying payment {n} after ERROR from upstream"),
    "ERROR": ("GET /orders/{n} 500 {ms}ms", "payment {n} failed: upstream timed out"),
    "FATAL": ("out of file descriptors, restarting worker {n}",),
}

MALFORMED: Final[tuple[bytes | None, ...]] = (
    None,
    b"",
    b"\tat com.example.Orders.load(Orders.java:42)",
    b"2026-13-01 10:00:00 ERROR month thirteen",
    b"2026-02-30 10:00:00 INFO a day that never was",
    b"\xff\xfe\x00binary",
    b"ERROR without a time",
)


def lines_of(
    chance: random.Random, now: datetime, count: int
) -> Iterator[tuple[bytes | None, str | None]]:
    """``count`` records' values with the time ``now``; sometimes with a burst of errors.

    Each with its level; None for a record that cannot be understood.
    """
    burst = chance.random() < BURST_SHARE
    for _ in range(count * 5 if burst else count):
        if chance.random() < MALFORMED_SHARE:
            yield chance.choice(MALFORMED), None
            continue
        level = chance.choices(LEVELS, BURST_WEIGHTS if burst else CALM_WEIGHTS)[0]
        text = chance.choice(MESSAGES[level]).format(
            n=chance.randrange(100_000), ms=chance.randrange(1, 900)
        )
        yield f"{now:%Y-%m-%d %H:%M:%S} {level} {text}".encode(), level


class Traffic:
    """A thread that writes about ``rate`` lines a second until it is closed.

    Args:
        writer: Sends the lines.
        topic: The topic.
        partitions: The topic's number of partitions.
        levels: Levels whose lines are to be counted.
        rate: Lines a second, without bursts.
        seed: The seed of the lines and of the partitions that they go to.
        clock: Gives the lines' times; the machine's clock when None.
    """

    def __init__(
        self,
        writer: LineWriter,
        topic: str,
        *,
        partitions: int,
        levels: Collection[str],
        rate: int,
        seed: int,
        clock: Clock | None = None,
    ) -> None:
        self._writer = writer
        self._clock: Clock = clock or Clock()
        self._partitions = [TopicPartition(topic=topic, partition=n) for n in range(partitions)]
        self._levels = frozenset(levels)
        self._per_tick = max(1, round(rate * TICK_S))
        self._random = random.Random(seed)  # noqa: S311 - a demonstration, no secret
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._matching: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
        self._sent = 0
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._work, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        if isinstance(error, StackError):
            self._stopping.set()  # the stack has stopped: no broker will answer
        else:
            self.close()

    def close(self) -> None:
        """Stop writing; returns when the broker has answered for every line."""
        self._stopping.set()
        self._thread.join()

    @property
    def sent(self) -> int:
        """Lines that the broker has acknowledged."""
        with self._lock:
            return self._sent

    def lines_before(self, next_offsets: Mapping[int, int]) -> dict[str, int]:
        """Lines at the levels, per minute, among those that lie before these offsets.

        Raises:
            KafkaUnavailableError: A line was not acknowledged, so it is not known what Kafka holds.
        """
        if self._failure is not None:
            raise KafkaUnavailableError(f"a line was not delivered: {self._failure}")
        with self._lock:
            counts = Counter(
                minute
                for partition, lines in self._matching.items()
                for offset, minute in lines
                if offset < next_offsets.get(partition, 0)
            )
        return dict(sorted(counts.items()))

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                now = self._clock.now()
                minute = f"{now:%Y-%m-%d %H:%M}"
                for value, level in lines_of(self._random, now, self._per_tick):
                    partition = self._random.choice(self._partitions)
                    self._write(partition, value, minute if level in self._levels else None)
                elapsed = (self._clock.now() - now).total_seconds()
                self._stopping.wait(max(0.0, TICK_S - elapsed))
            self._writer.flush()
        except Exception as error:  # ends the thread; lines_before raises it
            self._failure = repr(error)
            raise

    def _write(self, partition: TopicPartition, value: bytes | None, counts: str | None) -> None:
        """Write a record; ``counts`` is the minute in which its line must be counted, if any."""

        def delivered(offset: int) -> None:
            with self._lock:
                self._sent += 1
                if counts is not None:
                    self._matching[partition.partition].append((offset, counts))

        def failed(why: str) -> None:
            self._failure = why

        self._writer.write(partition, value, delivered, failed)
