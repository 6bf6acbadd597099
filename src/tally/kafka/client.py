"""The Kafka client: questions about topics, and the mirrored offsets."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AclOperation, ConfigResource, NewTopic, ResourceType
from confluent_kafka.admin._listoffsets import OffsetSpec

from tally import model
from tally.config.servers import KafkaSettings
from tally.each import is_down
from tally.errors import AccessDeniedError, TallyError, TopicIdError
from tally.kafka.errors import TopicExistsError, UnknownTopicError
from tally.kafka.records import Span, first_records, read_range
from tally.kafka.requests import Requests
from tally.lines.reading import Record

# How a broker without topic ids answers: the id of sixteen zero bytes.
NO_TOPIC_ID = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "None", ""})

# Kafka writes the offsets of a request as one batch of records, which has a largest size.
_COMMITTED_AT_ONCE: Final = 2_000
# A thousand years. The largest number that Kafka takes is a common way to say "for ever".
_RETENTION_MAX_MS: Final = 1_000 * 365 * 86_400_000


class Kafka:
    """A client of one Kafka cluster for questions about topics.

    Every call answers or raises within ``kafka.request_timeout_s`` plus a moment's grace, for all
    of its requests together. The connection is opened with the first call.

    Args:
        settings: How to reach the cluster.
        requests: Opens the client and sends its requests; from the settings when None.
    """

    def __init__(self, settings: KafkaSettings, *, requests: Requests | None = None) -> None:
        self._settings = settings
        self._requests = requests or Requests(settings)

    def snapshot(
        self, topics: Iterable[str], *, read_committed: bool = True
    ) -> model.KafkaSnapshot:
        """Ids, earliest and end offsets of the topics, as of now.

        Args:
            topics: Names; a topic that Kafka does not know is left out of the answer.
            read_committed: Whether ends are last stable offsets or high watermarks.

        Raises:
            KafkaUnavailableError: No answer in time, or a partition without a leader.
            AccessDeniedError: The brokers refused the credentials or the topic.
            TopicIdError: The brokers give topics no ids.
        """
        ask = partial(self._snapshot, list(topics), read_committed)
        return self._requests.once_settled(ask)

    def _snapshot(
        self, topics: list[str], read_committed: bool, deadline: float
    ) -> model.KafkaSnapshot:
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
        firsts = self._offsets({p: OffsetSpec.earliest() for p in partitions}, deadline)
        latest = {p: OffsetSpec.latest() for p in partitions}
        written = self._offsets(latest, deadline)
        ends = self._offsets(latest, deadline, read_committed=True) if read_committed else written
        # Not describe_cluster: librdkafka aborts the process when a broker that has just started
        # answers that with a list of no brokers, as it knows none yet. One topic keeps the answer
        # small; None asks for all.
        one = next(iter(described), None)
        metadata = self._requests.send(
            "describe the cluster", deadline, "list_topics", one, limit="timeout"
        )
        cluster_id = str(metadata.cluster_id)
        return model.KafkaSnapshot(
            cluster_id=cluster_id,
            topics={
                name: model.TopicSnapshot(
                    topic_id=str(description.topic_id),
                    cluster_id=cluster_id,
                    partitions={
                        p.id: _held(*(of[name, p.id] for of in (firsts, ends, written)))
                        for p in description.partitions
                    },
                )
                for name, description in described.items()
                if description.partitions
            },
        )

    def offsets_at(
        self, partitions: Iterable[model.TopicPartition], moment: datetime
    ) -> Mapping[model.TopicPartition, int | None]:
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
            {KafkaTopicPartition(p.topic, p.partition): spec for p in wanted},
            self._requests.deadline(),
        )
        return {p: offset if (offset := found[p.topic, p.partition]) >= 0 else None for p in wanted}

    def records_at(
        self,
        offsets: Mapping[model.TopicPartition, int],
        *,
        records_max: int = 1,
        bytes_max: int | None = None,
        read_committed: bool = True,
    ) -> Mapping[model.TopicPartition, Sequence[Record]]:
        """The first records at or after an offset of each partition, at most this many of each.

        Of more than ``bytes_max`` bytes of a partition the newest are kept.
        What did not come in time is left out.

        Raises:
            KafkaUnavailableError, AccessDeniedError: As :meth:`Kafka.snapshot`.
        """
        return first_records(self._settings, offsets, records_max, bytes_max, read_committed)

    def read(
        self,
        asked: model.OffsetRange,
        *,
        until: float,
        read_committed: bool = True,
        is_wanted: Callable[[bytes], bool] | None = None,
    ) -> Iterator[Span]:
        """The records of a range, in order; see :func:`tally.kafka.records.read_range`.

        Raises:
            KafkaUnavailableError, AccessDeniedError: As :meth:`Kafka.snapshot`.
        """
        return read_range(self._settings, asked, read_committed, until, is_wanted)

    def retention(self, topics: Iterable[str]) -> Mapping[str, timedelta | None]:
        """How long each topic keeps its records; None for one that keeps them by size or for ever.

        A topic that is compacted alone keeps the last one of each key for ever.

        Topics whose settings these credentials may not see are left out.
        """
        deadline = self._requests.deadline()
        found: dict[str, timedelta | None] = {}
        for name in topics:
            config = self._config(name, deadline)
            if config is not None:
                milliseconds = int(config["retention.ms"].value)
                is_bounded = 0 <= milliseconds <= _RETENTION_MAX_MS
                is_bounded &= "delete" in config["cleanup.policy"].value
                found[name] = timedelta(milliseconds=milliseconds) if is_bounded else None
        return found

    def create_topic(self, topic: str, partitions: int) -> bool:
        """Create a topic with one replica; False when it exists already."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        try:
            deadline = self._requests.deadline()
            self._requests.answers(f"create the topic {topic}", deadline, "create_topics", [new])
        except TopicExistsError:
            return False
        return True

    def commit_offsets(
        self, group: str, offsets: Mapping[model.TopicPartition, int], note: str = ""
    ) -> None:
        """Mirror offsets into a consumer group, for lag tools, each with a note.

        Tally counts from its ledger alone; it reads the notes of topics that the ledger lacks.
        """
        mirrored = [
            KafkaTopicPartition(p.topic, p.partition, offset, metadata=note)
            for p, offset in offsets.items()
        ]
        operation, method = f"commit offsets to the group {group}", "alter_consumer_group_offsets"

        def commit(deadline: float) -> None:
            for first in range(0, len(mirrored), _COMMITTED_AT_ONCE):
                some = mirrored[first : first + _COMMITTED_AT_ONCE]
                request = ConsumerGroupTopicPartitions(group, some)
                answers = self._requests.answers(operation, deadline, method, [request])
                for partition in (p for answer in answers for p in answer.topic_partitions or []):
                    if partition.error is not None:
                        raise self._requests.error(operation, partition.error)

        self._requests.once_settled(commit)

    def notes_of(self, group: str) -> Mapping[model.TopicPartition, str]:
        """The notes beside the offsets of a consumer group; empty of one that is not there.

        The group is described first, until its coordinator answers. librdkafka's admin client ends
        the process when it asks another broker for a group's offsets (librdkafka, issue 5040), as
        it does while a new cluster chooses its first coordinator.

        Raises:
            KafkaUnavailableError, AccessDeniedError: As :meth:`Kafka.snapshot`.
        """
        operation = f"read the offsets of the group {group}"

        def read(deadline: float) -> list[Any]:
            self._requests.answers(operation, deadline, "describe_consumer_groups", [group])
            request = [ConsumerGroupTopicPartitions(group)]
            return self._requests.answers(
                operation, deadline, "list_consumer_group_offsets", request
            )

        return {
            model.TopicPartition(topic=p.topic, partition=p.partition): p.metadata or ""
            for answer in self._requests.once_settled(read)
            for p in answer.topic_partitions or []
            if p.offset >= 0
        }

    def rights(self, topics: Iterable[str]) -> Mapping[str, model.TopicRights]:
        """What these credentials may do with the topics; unknown topics are left out."""
        deadline = self._requests.deadline()
        found: dict[str, model.TopicRights] = {}
        for name, description in self._describe(list(topics), deadline, rights=True).items():
            allowed = {of.value for of in description.authorized_operations or ()}
            config = self._config(name, deadline)
            found[name] = model.TopicRights(
                readable=AclOperation.READ.value in allowed,
                compacted=None if config is None else "compact" in config["cleanup.policy"].value,
            )
        return found

    def _config(self, topic: str, deadline: float) -> Any:
        """A topic's settings by name; None when these credentials may not see them."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            operation = f"describe the settings of the topic {topic}"
            return self._requests.answers(operation, deadline, "describe_configs", [resource])[0]
        except AccessDeniedError:
            return None

    def _describe(
        self, topics: list[str], deadline: float, *, rights: bool = False
    ) -> dict[str, Any]:
        futures = self._requests.send(
            "describe the topics",
            deadline,
            "describe_topics",
            TopicCollection(topics),
            include_authorized_operations=rights,
        )
        described = {}
        for name, future in futures.items():
            try:
                described[name] = self._requests.result(
                    f"describe the topic {name}", deadline, future
                )
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
        futures = self._requests.send(
            "list offsets", deadline, "list_offsets", dict(wanted), isolation_level=isolation
        )
        return {
            (p.topic, p.partition): self._requests.result(
                f"list the offsets of {p.topic}/{p.partition}", deadline, future
            ).offset
            for p, future in futures.items()
        }


class AskedOnce(Kafka):
    """A client that asks once for the state of many topics, and answers from that.

    Args:
        kafka: The client that asks.
        topics: The topics, by whether their ends are last stable offsets.
    """

    def __init__(self, kafka: Kafka, topics: Mapping[bool, Iterable[str]]) -> None:
        super().__init__(kafka._settings, requests=kafka._requests)  # noqa: SLF001 - of this module
        self._topics = topics
        self._found: dict[bool, model.KafkaSnapshot | None] = {}

    def snapshot(
        self, topics: Iterable[str], *, read_committed: bool = True
    ) -> model.KafkaSnapshot:
        """See :meth:`Kafka.snapshot`; the topics are among those.

        Where one of all the topics cannot be asked, each request asks for its own.
        """
        if read_committed not in self._found:
            asked = self._topics[read_committed]
            try:
                self._found[read_committed] = super().snapshot(asked, read_committed=read_committed)
            except TallyError as error:
                if is_down(error):
                    raise
                self._found[read_committed] = None
        found = self._found[read_committed]
        if found is None:
            return super().snapshot(topics, read_committed=read_committed)
        wanted = {topic: found.topics[topic] for topic in topics if topic in found.topics}
        return dataclasses.replace(found, topics=wanted)


def _held(earliest: int, end: int, written_end: int) -> model.PartitionSnapshot:
    """The answers of three requests for a partition: its first offset, stable end, written end.

    Retention may pass by between them, and pass by the first record of an open transaction: the
    stable end is then before the first offset, and nothing can be read. The stable end is asked for
    last, so that what is written between the requests is not taken for unstable.
    """
    end = max(earliest, end)
    return model.PartitionSnapshot(earliest=earliest, end=end, unstable=max(0, written_end - end))
