"""Reading records by a consumer of librdkafka, independent of Spark."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tally.config.servers import KafkaSettings
from tally.kafka import errors
from tally.kafka.requests import SILENT, client_options
from tally.lines.reading import Record
from tally.model import OffsetRange, TopicPartition

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
_BULK: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 8_388_608,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,  # a full queue is empty again within milliseconds
}
_BULK_RECORDS: Final = 2_000
# The end of a partition, and bytes that do not match their checksum.
_ENDS: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._BAD_MSG})  # noqa: SLF001


def first_records(
    settings: KafkaSettings,
    offsets: Mapping[TopicPartition, int],
    records_max: int,
    bytes_max: int | None,
    read_committed: bool,
) -> dict[TopicPartition, list[Record]]:
    """The first records at or after an offset, for each partition.

    Args:
        settings: How to reach the cluster; all is answered within ``request_timeout_s``.
        offsets: Where to look.
        records_max: The largest number of records of a partition.
        bytes_max: How large the values of a partition may be together, None for any size; of more
            the newest are kept.
        read_committed: Whether records of open and aborted transactions are left out.

    Returns:
        By partition; what did not come in time, or follows damaged bytes, is left out.

    Raises:
        KafkaUnavailableError: The client could not be used.
        AccessDeniedError: The brokers refused the credentials or a topic.
    """
    if not offsets:
        return {}
    until = time.monotonic() + settings.request_timeout_s
    options = _options(settings, read_committed)
    found: dict[TopicPartition, list[Record]] = {}
    read: Counter[TopicPartition] = Counter()
    size: Counter[TopicPartition] = Counter()
    waiting: dict[tuple[Any, Any], TopicPartition] = {(p.topic, p.partition): p for p in offsets}
    consumer = Consumer(options, logger=SILENT)
    try:
        consumer.assign([KafkaTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()])
        while waiting and time.monotonic() < until:
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
            some.append(_record(message))
            read[where] += 1
            size[where] += len(message.value() or b"")
            while bytes_max is not None and size[where] > bytes_max:
                size[where] -= len(some.pop(0).value or b"")
            if read[where] == records_max:
                del waiting[place]
                consumer.pause([KafkaTopicPartition(where.topic, where.partition)])
    except KafkaException as error:
        raise errors.translate(settings, "read the first records", error.args[0]) from error
    finally:
        consumer.close()
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Records of a partition, one after another."""

    records: Sequence[Record]
    """With their offsets; without those that the isolation level leaves out, and those that are not
    wanted."""
    until_offset: int
    """Where the next ones begin; all before is read."""
    n_read: int
    """How many were read, with those that are not wanted."""
    n_bytes: int
    """The bytes of their values."""


def read_range(
    settings: KafkaSettings,
    asked: OffsetRange,
    read_committed: bool,
    until: float,
    is_wanted: Callable[[bytes], bool] | None = None,
) -> Iterator[Span]:
    """The records of a range in order, some thousand at a time.

    Ends where the range ends, and where the partition does.

    Args:
        settings: How to reach the cluster.
        asked: The range.
        read_committed: Whether records of open and aborted transactions are left out.
        until: When to stop, by ``time.monotonic``.
        is_wanted: Whether a value's record is; all are when None.

    Raises:
        KafkaUnavailableError: The client could not be used.
        AccessDeniedError: The brokers refused the credentials or the topic.
    """
    where = asked.partition
    options = {**_options(settings, read_committed), **_BULK}
    consumer, at = Consumer(options, logger=SILENT), asked.from_offset
    try:
        consumer.assign([KafkaTopicPartition(where.topic, where.partition, at)])
        while at < asked.until_offset and time.monotonic() < until:
            read, n_bytes, messages, has_ended = 0, 0, [], False
            for message in consumer.consume(_BULK_RECORDS, _POLL_S):
                if (error := message.error()) is not None:
                    _check(error)
                    has_ended |= error.code() in _ENDS
                    continue
                offset, value = message.offset(), message.value() or b""
                if offset is None or offset >= asked.until_offset:
                    has_ended = True
                    break
                at = offset + 1
                read += 1
                n_bytes += len(value)
                if is_wanted is None or is_wanted(value):
                    messages.append(message)
            has_ended |= at >= asked.until_offset
            yield Span(
                records=[_record(message) for message in messages],
                until_offset=asked.until_offset if has_ended else at,
                n_read=read,
                n_bytes=n_bytes,
            )
            if has_ended:
                return
    except KafkaException as error:
        raise errors.translate(settings, f"read {asked}", error.args[0]) from error
    finally:
        consumer.close()


def _options(settings: KafkaSettings, read_committed: bool) -> dict[str, Any]:
    level = "read_committed" if read_committed else "read_uncommitted"
    return {**client_options(settings), **_FETCH, "isolation.level": level}


def _record(message: Message) -> Record:
    value, key, offset = message.value(), message.key(), message.offset()
    written_at = _written_at(message)
    return Record(
        value=value, written_at=written_at, key=key, offset=-1 if offset is None else offset
    )


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
    if error.code() in errors.DENIED or error.fatal():
        raise KafkaException(error)
