"""Writes lines to the topic until it is closed, and keeps what the broker acknowledged.

What it keeps comes from the lines that it made and from the broker's acknowledgements: neither from
the ledger nor from any other count.
"""

import random
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Self

from tally.clock import Clock
from tally.errors import KafkaUnavailableError, StackError
from tally.model import TopicPartition
from tally_local.demo.lines import Line, LineMaker
from tally_local.demo.writer import Writer

TICK_S = 0.1


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
        writer: Writer,
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
        self._lines = LineMaker(seed)
        self._random = random.Random(seed)  # noqa: S311 - a demonstration, no secret
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._matching: dict[int, list[tuple[int, str]]] = {}
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
        if self._thread.is_alive():
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
            self._write_until_closed()
        except Exception as error:  # ends the thread; lines_before raises it
            self._failure = repr(error)
            raise

    def _write_until_closed(self) -> None:
        while not self._stopping.is_set():
            now = self._clock.now()
            for line in self._lines.batch(now, self._per_tick):
                self._write(line, self._random.choice(self._partitions))
            elapsed = self._clock.now() - now
            self._stopping.wait(max(0.0, (timedelta(seconds=TICK_S) - elapsed).total_seconds()))
        self._writer.flush()

    def _write(self, line: Line, partition: TopicPartition) -> None:
        def delivered(offset: int) -> None:
            with self._lock:
                self._sent += 1
                if line.minute is not None and line.level in self._levels:
                    lines = self._matching.setdefault(partition.partition, [])
                    lines.append((offset, line.minute))

        def failed(why: str) -> None:
            self._failure = why

        self._writer.write(partition, line.value, delivered, failed)
