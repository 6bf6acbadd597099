"""Some records of each partition from an offset on, fetched without a group, to be looked at."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tally.config.servers import KafkaSettings
from tally.kafka.errors import DENIED, translate
from tally.kafka.requests import SILENT, client_options
from tally.model import Record, TopicPartition

# Few records are asked for, not a throughput: little is fetched ahead.
_FETCH: Final[Mapping[str, Any]] = {
    "group.id": "tally-console",  # librdkafka asks for one; nothing is joined or committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 65_536,
    "queued.max.messages.kbytes": 4_096,
    "fetch.wait.max.ms": 100,
    "check.crcs": True,  # in librdkafka it costs nothing that can be measured
}
_POLL_S: Final = 0.2
# The end of a partition, and bytes that do not match their checksum.
_ENDS: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._BAD_MSG})  # noqa: SLF001


def first_records(
    settings: KafkaSettings,
    offsets: Mapping[TopicPartition, int],
    *,
    records_max: int,
    bytes_max: int | None = None,
    read_committed: bool,
    clock: Callable[[], float] = time.monotonic,
) -> dict[TopicPartition, list[Record]]:
    """The first records at or after an offset, for each partition.

    Args:
        settings: How to reach the cluster; all is answered within ``request_timeout_s``.
        offsets: Where to look.
        records_max: The largest number of records of a partition.
        bytes_max: How large the values of a partition may be together, None for any size; of more
            the newest are kept.
        read_committed: Whether records of open and aborted transactions are left out.
        clock: Seconds that only go on.

    Returns:
        By partition; what did not come in time, or follows damaged bytes, is left out.

    Raises:
        KafkaUnavailableError: The client could not be used.
        AccessDeniedError: The brokers refused the credentials or a topic.
    """
    if not offsets:
        return {}
    until = clock() + settings.request_timeout_s
    level = "read_committed" if read_committed else "read_uncommitted"
    options = {**client_options(settings), **_FETCH, "isolation.level": level}
    found: dict[TopicPartition, list[Record]] = {}
    read: Counter[TopicPartition] = Counter()
    size: Counter[TopicPartition] = Counter()
    waiting: dict[tuple[Any, Any], TopicPartition] = {(p.topic, p.partition): p for p in offsets}
    consumer = Consumer(options, logger=SILENT)
    try:
        consumer.assign([KafkaTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()])
        while waiting and clock() < until:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            place = (message.topic(), message.partition())
            if (error := message.error()) is not None:
                _check(error)
                if error.code() in _ENDS:
                    waiting.pop(place, None)
                continue
            if (where := waiting.get(place)) is None:
                continue
            some = found.setdefault(where, [])
            some.append(Record(value=message.value(), written_at=_written_at(message)))
            read[where] += 1
            size[where] += len(message.value() or b"")
            while bytes_max is not None and size[where] > bytes_max:
                size[where] -= len(some.pop(0).value or b"")
            if read[where] == records_max:
                del waiting[place]
                consumer.pause([KafkaTopicPartition(where.topic, where.partition)])
    except KafkaException as error:
        raise translate(settings, "read the first records", error.args[0]) from error
    finally:
        consumer.close()
    return found


def _written_at(message: Message) -> datetime | None:
    """A record's time; None for one that no calendar has: producers set it as they like."""
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _check(error: KafkaError) -> None:
    """Raise what does not pass by itself; of a moved leader librdkafka looks for the new one."""
    if error.code() in DENIED or error.fatal():
        raise KafkaException(error)
