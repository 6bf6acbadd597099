"""The Kafka client: questions about topics, and the mirrored offsets. No other module opens one."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, NewTopic, ResourceType
from confluent_kafka.admin._listoffsets import OffsetSpec

from tally.clock import Clock, SystemClock
from tally.config.servers import KafkaSettings
from tally.errors import AccessDeniedError, KafkaUnavailableError, TallyError, TopicIdError
from tally.kafka.errors import (
    MovingError,
    TopicExistsError,
    UnknownTopicError,
    more_telling,
    translate,
    unavailable,
)
from tally.kafka.options import SILENT, client_options
from tally.model import KafkaSnapshot, PartitionSnapshot, TopicPartition, TopicRights, TopicSnapshot

T = TypeVar("T")


# How a broker without topic ids answers: the id of sixteen zero bytes.
NO_TOPIC_ID = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "None", ""})

MOVING_PAUSE_S = 0.2

# The client's own timeout comes first; a client that does not keep it gets this much longer.
GRACE_S = 1.0


@dataclass(slots=True)
class _ConnectionError:
    """The most telling error of the client's connections, set when the client is polled.

    It holds no reference to the client. In a reference cycle the garbage collector could close the
    client from librdkafka's own thread, and librdkafka then aborts the process.
    """

    error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        self.error = more_telling(self.error, error)


def _open_client(options: dict[str, Any]) -> AdminClient:
    return AdminClient(options, logger=SILENT)


class Kafka:
    """A client of one Kafka cluster for questions about topics.

    Every call answers or raises within ``kafka.request_timeout_s`` plus ``grace_s`` seconds, for
    all of its requests together. The connection is opened with the first call.

    Args:
        settings: How to reach the cluster.
        open_client: Makes the client, from librdkafka's configuration.
        grace_s: Seconds to wait beyond the timeout for a client that does not keep it.
        moving_pause_s: Seconds between two tries while a leader or a coordinator is chosen.
        clock: Measures the timeout; the machine's clock when None.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        open_client: Callable[[dict[str, Any]], AdminClient] = _open_client,
        grace_s: float = GRACE_S,
        moving_pause_s: float = MOVING_PAUSE_S,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._timeout_s = settings.request_timeout_s
        self._open_client = open_client
        self._grace_s, self._moving_pause_s = grace_s, moving_pause_s
        self._clock: Clock = clock or SystemClock()
        self._connections = _ConnectionError()

    @cached_property
    def _client(self) -> AdminClient:
        # librdkafka prints connection failures to stderr by itself; here they become errors.
        return self._open_client({**client_options(self._settings), "error_cb": self._connections})

    def snapshot(self, topics: Iterable[str], *, read_committed: bool = True) -> KafkaSnapshot:
        """Ids, earliest and end offsets of the topics, as of now.

        Args:
            topics: Names; a topic that Kafka does not know is left out of the answer.
            read_committed: Whether ends are last stable offsets or high watermarks.

        Raises:
            KafkaUnavailableError: No answer in time, or a partition without a leader.
            AccessDeniedError: The brokers refused the credentials or the topic.
            TopicIdError: The brokers give topics no ids.
        """
        names = list(topics)
        deadline = self._deadline()
        return self._once_settled(
            deadline, lambda: self._snapshot(names, deadline, read_committed=read_committed)
        )

    def _snapshot(
        self, topics: list[str], deadline: float, *, read_committed: bool
    ) -> KafkaSnapshot:
        described = self._describe(topics, deadline)
        if nameless := [n for n, d in described.items() if str(d.topic_id) in NO_TOPIC_ID]:
            raise TopicIdError(
                f"Kafka ({self._settings.bootstrap_servers}) gives {', '.join(nameless)} no id; "
                "without one a topic that was created again looks like the one before",
                next_step="use brokers that give topics ids: Kafka 2.8 or newer",
            )
        partitions = [
            KafkaTopicPartition(name, partition.id)
            for name, description in described.items()
            for partition in description.partitions
        ]
        earliest = self._offsets({p: OffsetSpec.earliest() for p in partitions}, deadline)
        ends = self._offsets(
            {p: OffsetSpec.latest() for p in partitions}, deadline, read_committed=read_committed
        )
        return KafkaSnapshot(
            cluster_id=self._cluster_id(next(iter(described), None), deadline),
            topics={
                name: TopicSnapshot(
                    topic_id=str(description.topic_id),
                    partitions={
                        p.id: PartitionSnapshot(
                            # Retention may run between the two requests; the later answer is right.
                            earliest=min(earliest[name, p.id], ends[name, p.id]),
                            end=ends[name, p.id],
                        )
                        for p in description.partitions
                    },
                )
                for name, description in described.items()
                if description.partitions
            },
        )

    def _cluster_id(self, topic: str | None, deadline: float) -> str:
        """The id of the cluster that answers now.

        Not from describe_cluster: librdkafka aborts the process when a broker that has just started
        answers that with a list of no brokers, as it knows none yet.

        Args:
            topic: A topic that exists, to keep the answer small; None asks for all topics.
            deadline: When an answer must be there.
        """
        metadata = self._start(
            "describe the cluster",
            deadline,
            lambda left_s: self._client.list_topics(topic, timeout=left_s),
        )
        return str(metadata.cluster_id)

    def offsets_at(
        self, partitions: Iterable[TopicPartition], moment: datetime
    ) -> Mapping[TopicPartition, int | None]:
        """The offset of each partition's first record at or after a moment, by Kafka's index.

        Record times need not be ordered: earlier records may follow. None where no record is that
        late.

        Args:
            partitions: Where to look.
            moment: An aware time, to the millisecond.
        """
        wanted = list(partitions)
        spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
        found = self._offsets(
            {KafkaTopicPartition(p.topic, p.partition): spec for p in wanted}, self._deadline()
        )
        return {p: offset if (offset := found[p.topic, p.partition]) >= 0 else None for p in wanted}

    def create_topic(self, topic: str, partitions: int) -> bool:
        """Create a topic with one replica; False when it exists already."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        try:
            self._answer(
                f"create the topic {topic}",
                self._deadline(),
                lambda left_s: self._client.create_topics([new], request_timeout=left_s).values(),
            )
        except TopicExistsError:
            return False
        return True

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Mirror offsets into a consumer group, for lag tools. Tally never reads them."""
        request = ConsumerGroupTopicPartitions(
            group,
            [KafkaTopicPartition(p.topic, p.partition, offset) for p, offset in offsets.items()],
        )
        operation, deadline = f"commit offsets to the group {group}", self._deadline()

        def commit() -> None:
            answers = self._answer(
                operation,
                deadline,
                lambda left_s: self._client.alter_consumer_group_offsets(
                    [request], request_timeout=left_s
                ).values(),
            )
            for partition in (p for answer in answers for p in answer.topic_partitions or []):
                if partition.error is not None:
                    raise self._translate(operation, partition.error)

        self._once_settled(deadline, commit)

    def rights(self, topics: Iterable[str]) -> dict[str, TopicRights]:
        """What these credentials may do with the topics; unknown topics are left out."""
        deadline = self._deadline()
        return {
            name: TopicRights(
                readable=any(
                    operation.value == AclOperation.READ.value
                    for operation in description.authorized_operations or ()
                ),
                compacted=self._is_compacted(name, deadline),
            )
            for name, description in self._describe(list(topics), deadline, rights=True).items()
        }

    def _is_compacted(self, topic: str, deadline: float) -> bool | None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            config = self._answer(
                f"describe the settings of the topic {topic}",
                deadline,
                lambda left_s: self._client.describe_configs(
                    [resource], request_timeout=left_s
                ).values(),
            )[0]
        except AccessDeniedError:
            return None
        return "compact" in config["cleanup.policy"].value

    def _describe(
        self, topics: list[str], deadline: float, *, rights: bool = False
    ) -> dict[str, Any]:
        futures = self._start(
            f"describe the topics {', '.join(topics)}",
            deadline,
            lambda left_s: self._client.describe_topics(
                TopicCollection(topics),
                include_authorized_operations=rights,
                request_timeout=left_s,
            ),
        )
        described = {}
        for name, future in futures.items():
            try:
                described[name] = self._result(f"describe the topic {name}", deadline, future)
            except UnknownTopicError:
                continue
        return described

    def _offsets(
        self,
        wanted: Mapping[KafkaTopicPartition, OffsetSpec],
        deadline: float,
        *,
        read_committed: bool = False,
    ) -> dict[tuple[str, int], int]:
        if not wanted:
            return {}
        isolation = (
            IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        )
        futures = self._start(
            "list offsets",
            deadline,
            lambda left_s: self._client.list_offsets(
                dict(wanted), isolation_level=isolation, request_timeout=left_s
            ),
        )
        return {
            (p.topic, p.partition): self._result(
                f"list the offsets of {p.topic}/{p.partition}", deadline, future
            ).offset
            for p, future in futures.items()
        }

    def _deadline(self) -> float:
        """The time by which a call that begins now must end, with all of its requests."""
        return self._clock.monotonic() + self._timeout_s

    def _once_settled(self, deadline: float, ask: Callable[[], T]) -> T:
        """Ask again until the broker that can answer is chosen.

        Leaders are elected when a topic is created or a broker leaves, coordinators when the
        cluster's first group appears: within moments.
        """
        while True:
            try:
                return ask()
            except MovingError:
                if self._clock.monotonic() + self._moving_pause_s >= deadline:
                    raise
                self._clock.sleep(self._moving_pause_s)

    def _answer(
        self, operation: str, deadline: float, ask: Callable[[float], Iterable["Future[T]"]]
    ) -> list[T]:
        futures = self._start(operation, deadline, ask)
        return [self._result(operation, deadline, future) for future in futures]

    def _start(self, operation: str, deadline: float, ask: Callable[[float], T]) -> T:
        self._poll()
        self._connections.error = None  # what was before this request is not its cause
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            raise self._unavailable(operation, "no time was left for it")
        try:
            return ask(left_s)
        except KafkaException as error:
            raise self._translate(operation, error.args[0]) from error

    def _result(self, operation: str, deadline: float, future: "Future[T]") -> T:
        left_s = max(0.0, deadline - self._clock.monotonic())
        try:
            return future.result(left_s + self._grace_s)
        except TimeoutError:
            raise self._unavailable(operation, "no answer") from None
        except KafkaException as error:
            raise self._translate(operation, error.args[0]) from error

    def _translate(self, operation: str, error: KafkaError) -> TallyError:
        servers = self._settings.bootstrap_servers
        return translate(servers, operation, error, self._poll(), self._timeout_s)

    def _unavailable(self, operation: str, cause: str) -> KafkaUnavailableError:
        servers = self._settings.bootstrap_servers
        return unavailable(servers, operation, cause, self._poll(), self._timeout_s)

    def _poll(self) -> KafkaError | None:
        """The most telling error of the connections since the request; librdkafka queues them."""
        self._client.poll(0)
        return self._connections.error
