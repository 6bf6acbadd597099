"""A plain Python loop over confluent-kafka, in one process or in several."""

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition

Range = tuple[int, int, int]
"""A partition, the first offset to read and the one behind the last."""

_CHUNK = 10_000

Count = Callable[[str, str, Sequence[Range]], Counter[str]]
"""The ERROR lines by minute, of a topic's ranges; see :func:`count`."""


def count(servers: str, topic: str, ranges: Sequence[Range]) -> Counter[str]:
    """Count in this process.

    Args:
        servers: Kafka's addresses.
        topic: The topic.
        ranges: What to read.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "python-consumer",
            "enable.auto.commit": False,
            "check.crcs": False,
            # librdkafka waits a second by default once its queue is full.
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, number, begin) for number, begin, _ in ranges])
    counts: Counter[str] = Counter()
    left = sum(end - begin for _, begin, end in ranges)
    while left:
        for message in consumer.consume(min(_CHUNK, left), 1.0):
            if message.error():
                raise RuntimeError(str(message.error()))
            value = message.value() or b""
            left -= 1
            if value[20:26] == b"ERROR ":
                counts[value[:16].decode()] += 1
    consumer.close()
    return counts


@contextmanager
def processes(number: int) -> Iterator[Count]:
    """Count in several processes at a time, each a share of the partitions.

    The processes live as long as the ``with`` block: a second count finds them warm.
    """
    with multiprocessing.get_context("spawn").Pool(number) as pool:

        def spread(servers: str, topic: str, ranges: Sequence[Range]) -> Counter[str]:
            shares = [ranges[at::number] for at in range(number)]
            found = pool.starmap(count, [(servers, topic, share) for share in shares if share])
            return sum(found, Counter())

        yield spread
