"""Writing records to Kafka, for the demonstration, the campaign and the benchmarks."""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from tally.config.servers import KafkaSettings
from tally.kafka.requests import SILENT, client_options
from tally.model import TopicPartition

_FULL_BUFFER_PAUSE_S: Final = 0.2


class LineWriter:
    """Writes records to Kafka and reports the outcome of each.

    Args:
        settings: How to reach the cluster.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        options = {**client_options(settings), "enable.idempotence": True, "linger.ms": 20}
        self._producer = Producer(options, logger=SILENT)

    def write(
        self,
        partition: TopicPartition,
        value: bytes | None,
        delivered: Callable[[int], None],
        failed: Callable[[str], None],
    ) -> None:
        """Queue a record; waits while the client's buffer is full.

        Args:
            partition: The partition to write to.
            value: The record's value.
            delivered: Called with the record's offset once it is stored, from any thread.
            failed: Called with the reason when it is not stored.
        """

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered(int(message.offset() or 0))
            else:
                failed(error.str())

        while True:
            try:
                self._producer.produce(
                    partition.topic,
                    value=value,
                    partition=partition.partition,
                    on_delivery=answered,
                )
            except BufferError:  # the broker is slower than we are
                self._producer.poll(_FULL_BUFFER_PAUSE_S)
            else:
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Return when every record is stored, or the client gave up on it."""
        self._producer.flush()
