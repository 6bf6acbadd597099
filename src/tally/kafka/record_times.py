"""When records were written: one record of each partition is fetched, without a group."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tally.config.servers import KafkaSettings
from tally.kafka.errors import DENIED, translate
from tally.kafka.options import SILENT, client_options
from tally.model import TopicPartition

# A record is asked for, not a throughput: little is fetched ahead.
_FETCH: Final[Mapping[str, Any]] = {
    "group.id": "tally-console",  # librdkafka asks for one; nothing is joined or committed
    "enable.auto.commit": False,
    "enable.partition.eof": False,
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 65_536,
    "queued.max.messages.kbytes": 4_096,
    "fetch.wait.max.ms": 100,
}
_POLL_S: Final = 0.2


def record_times(
    settings: KafkaSettings,
    offsets: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
    clock: Callable[[], float] = time.monotonic,
) -> dict[TopicPartition, datetime]:
    """The timestamp of the first record at or after an offset, for each partition.

    Args:
        settings: How to reach the cluster; all is answered within ``request_timeout_s``.
        offsets: Where to look. A partition without a record there is asked in vain until the end.
        read_committed: Whether records of open and aborted transactions are left out.
        clock: Seconds that only go on.

    Returns:
        By partition, in UTC; those that were not answered in time, or have no timestamp, are left
        out.

    Raises:
        KafkaUnavailableError: The client could not be used.
        AccessDeniedError: The brokers refused the credentials or a topic.
    """
    if not offsets:
        return {}
    until = clock() + settings.request_timeout_s
    level = "read_committed" if read_committed else "read_uncommitted"
    options = {**client_options(settings), **_FETCH, "isolation.level": level}
    found: dict[TopicPartition, datetime] = {}
    waiting: dict[tuple[Any, Any], TopicPartition] = {(p.topic, p.partition): p for p in offsets}
    consumer = Consumer(options, logger=SILENT)
    try:
        consumer.assign([KafkaTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()])
        while waiting and clock() < until:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if (error := message.error()) is not None:
                _check(error)
                continue
            where = waiting.pop((message.topic(), message.partition()), None)
            if where is None:
                continue
            consumer.pause([KafkaTopicPartition(where.topic, where.partition)])
            kind, milliseconds = message.timestamp()
            if kind != TIMESTAMP_NOT_AVAILABLE and (at := _moment(milliseconds)) is not None:
                found[where] = at
    except KafkaException as error:
        raise translate(
            settings.bootstrap_servers,
            "read the first records",
            error.args[0],
            None,
            settings.request_timeout_s,
        ) from error
    finally:
        consumer.close()
    return found


def _moment(milliseconds: int) -> datetime | None:
    """A record's time; None for one that no calendar has: producers set it as they like."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _check(error: KafkaError) -> None:
    """Raise what does not pass by itself; of a moved leader librdkafka looks for the new one."""
    if error.code() in DENIED or error.fatal():
        raise KafkaException(error)
