"""Reading records by a consumer of librdkafka, independent of Spark."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tally.config.servers import KafkaSettings
from tally.errors import ReadError
from tally.groups import in_groups
from tally.kafka import errors
from tally.kafka.requests import SILENT, client_options
from tally.lines.reading import Record, at_micros
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
_SOON_S: Final = 0.01
_BULK: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 8_388_608,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,  # a full queue is empty again within milliseconds
}
_BULK_RECORDS: Final = 2_000
# Of ranges that are read together, so many offsets at a time.
_TOGETHER: Final[Mapping[str, Any]] = {
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 262_144,
    "queued.max.messages.kbytes": 32_768,
    "fetch.wait.max.ms": 20,
}
_TOGETHER_OFFSETS: Final = 50_000
_TOGETHER_BYTES: Final = 16 * 1024 * 1024
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
    found: dict[TopicPartition, list[Record]] = {}
    read: Counter[TopicPartition] = Counter()
    size: Counter[TopicPartition] = Counter()
    with _consumer(settings, _options(settings, read_committed), "read the first records") as one:
        of = _Reading(one, offsets)
        for where, message in of.messages(until):
            if (error := message.error()) is not None:
                if error.code() in _ENDS:
                    of.leave(where)
                continue
            some = found.setdefault(where, [])
            some.append(_record(message))
            read[where] += 1
            size[where] += len(message.value() or b"")
            while bytes_max is not None and size[where] > bytes_max:
                size[where] -= len(some.pop(0).value or b"")
            if read[where] == records_max:
                of.leave(where)
    return found


def whole_ranges(
    settings: KafkaSettings, ranges: Sequence[OffsetRange], read_committed: bool
) -> Iterator[dict[OffsetRange, list[Record]]]:
    """Small ranges, some at a time, by one consumer: the records of a range all, or not at all.

    A consumer for each range, as Spark has, takes more time than what it reads. Left out is a range
    of which something is odd, such as a timestamp that no calendar has: read it in another way,
    which says what is wrong. So are all ranges once some did not come within ``request_timeout_s``.

    Args:
        settings: How to reach the cluster.
        ranges: At most one for each partition.
        read_committed: Whether records of open and aborted transactions are left out.

    Yields:
        The records of some ranges, in order; 16 MiB of them at most.

    Raises:
        KafkaUnavailableError: The client could not be used.
        AccessDeniedError: The brokers refused the credentials or a topic.
        ReadError: The bytes of a range are damaged.
    """
    options = {**_options(settings, read_committed), **_TOGETHER}
    with _consumer(settings, options, "read small ranges") as consumer:
        for some in in_groups(ranges, lambda r: r.offsets, _TOGETHER_OFFSETS):
            until = time.monotonic() + settings.request_timeout_s
            whole = _whole(consumer, some, until)
            is_late = time.monotonic() >= until
            yield whole
            if is_late:
                return


def _whole(
    consumer: Consumer, ranges: Sequence[OffsetRange], until: float
) -> dict[OffsetRange, list[Record]]:
    asked = {r.partition: r for r in ranges}
    records: dict[TopicPartition, list[Record]] = {r.partition: [] for r in ranges}
    whole: dict[OffsetRange, list[Record]] = {}
    size = 0
    of = _Reading(consumer, {r.partition: r.from_offset for r in ranges})
    for where, message in of.messages(until):
        end, offset = asked[where].until_offset, message.offset() or 0
        error = message.error()
        is_damaged = error is not None and error.code() == KafkaError._BAD_MSG  # noqa: SLF001
        if is_damaged and offset < end:
            raise ReadError(
                f"the bytes of {asked[where]} are damaged: {error}",
                next_step="run it again; if it stays, look at the disks of the partition's brokers",
            )
        is_record = error is None
        if is_record and offset < end:
            record = _record(message)
            size += len(record.value or b"") + len(record.key or b"")
            records[where].append(record)
            is_odd = record.written_at is None or size > _TOGETHER_BYTES
        else:
            is_odd = offset < end  # its own end, and all else, lies behind the range
        if is_odd or offset >= end - is_record:
            of.leave(where)
            found = records.pop(where)
            if not is_odd:
                whole[asked[where]] = found
    return whole


class _Reading:
    """Partitions that are read by one consumer, each from an offset until it is left."""

    def __init__(self, consumer: Consumer, offsets: Mapping[TopicPartition, int]) -> None:
        """The consumer reads these, and none that it has read before."""
        self._consumer = consumer
        self._waiting: dict[tuple[Any, Any], TopicPartition] = {
            (p.topic, p.partition): p for p in offsets
        }
        consumer.assign([KafkaTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()])

    def leave(self, where: TopicPartition) -> None:
        """Read no more of a partition."""
        del self._waiting[where.topic, where.partition]
        self._consumer.pause([KafkaTopicPartition(where.topic, where.partition)])

    def messages(self, until: float) -> Iterator[tuple[TopicPartition, Message]]:
        """What comes of the partitions that were not left, until none is left.

        Args:
            until: When to stop, by ``time.monotonic``.

        Yields:
            A record; or an error, such as the end of the partition, after which the next record of
            the partition is not the next one in Kafka.
        """
        while self._waiting and time.monotonic() < until:
            for message in self._consumer.consume(_BULK_RECORDS, _SOON_S):
                where = self._waiting.get((message.topic(), message.partition()))
                if (error := message.error()) is not None:
                    _check(error)
                if where is not None:
                    yield where, message


@contextmanager
def _consumer(settings: KafkaSettings, options: Mapping[str, Any], what: str) -> Iterator[Consumer]:
    """A consumer, with its errors as Tally's."""
    consumer = Consumer(dict(options), logger=SILENT)
    try:
        yield consumer
    except KafkaException as error:
        raise errors.translate(settings, what, error.args[0]) from error
    finally:
        consumer.close()


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

    Ends where the range ends or the partition does, and before records that Kafka no longer has.

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
    at = asked.from_offset
    with _consumer(settings, options, f"read {asked}") as consumer:
        consumer.assign([KafkaTopicPartition(where.topic, where.partition, at)])
        while at < asked.until_offset and time.monotonic() < until:
            read, n_bytes, messages, has_ended, is_gone = 0, 0, [], False, False
            for message in consumer.consume(_BULK_RECORDS, _POLL_S):
                if (error := message.error()) is not None:
                    _check(error)
                    has_ended |= error.code() in _ENDS
                    is_gone |= error.code() == KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
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
            if has_ended or is_gone:
                return


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
    return None if kind == TIMESTAMP_NOT_AVAILABLE else at_micros(milliseconds * 1000)


def _check(error: KafkaError) -> None:
    """Raise what does not pass by itself; of a moved leader librdkafka looks for the new one.

    It also looks for the coordinator of a group, which nothing here needs a right for.
    """
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return
    if error.code() in errors.DENIED or error.fatal():
        raise KafkaException(error)
