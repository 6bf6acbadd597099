"""A model of Kafka in memory: what was ever written, what is held now, and since when.

A :class:`tally.kafka.client.Kafka` that remembers every record that an offset ever
held, and from when until when. Times are ticks of the model's own clock, which every change moves.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tally.model import KafkaSnapshot, PartitionSnapshot, TopicPartition, TopicRights, TopicSnapshot
from tests.fakes import FixedKafka

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

LEVELS = ("ERROR", "WARN", "INFO")


class Kind(StrEnum):
    """The kind of a record; ``BRACKETS`` is an ERROR to log4j and malformed in the fixed layout."""

    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"
    BRACKETS = "brackets"
    GARBAGE = "garbage"


@dataclass(frozen=True, slots=True)
class Record:
    """One record."""

    kind: Kind
    minute: int
    time: int
    """Its time in Kafka."""

    def level(self, line_format: str) -> str | None:
        """The level of the line; None when it cannot be understood."""
        if self.kind is Kind.BRACKETS:
            return "ERROR" if line_format == "log4j" else None
        return None if self.kind is Kind.GARBAGE else self.kind.value

    @property
    def length(self) -> int:
        """Bytes of its value; ERROR lines are long, so that other levels may be more in fewer."""
        return 1000 if self.kind.value == "ERROR" else 10

    @property
    def log_time(self) -> str:
        """The minute on the line's own clock."""
        return f"2017-07-30 14:{self.minute:02}:00"


@dataclass(slots=True)
class Log:
    """One partition."""

    earliest: int = 0
    end: int = 0
    held: dict[int, Record] = field(default_factory=dict)
    """The readable records by offset; transaction markers are not included."""
    told: dict[int, list[tuple[int, Record | None]]] = field(default_factory=dict)
    """Per offset, each record that it ever held with its first tick; None once it was gone."""
    expired: dict[int, Record | None] = field(default_factory=dict)
    """Records that retention deleted; a backup can restore them."""

    def at(self, offset: int, tick: int) -> Record | None:
        """What an offset held at a moment."""
        found = None
        for since, record in self.told.get(offset, ()):
            if since > tick:
                break
            found = record
        return found


@dataclass(slots=True)
class Generation:
    """A topic generation: from its creation to its deletion."""

    topic_id: str
    cluster_id: str
    logs: list[Log]
    was_away: bool = False
    """Whether Kafka has ever served no topic, or another generation, in its place."""


@dataclass
class KafkaModel(FixedKafka):
    """One cluster with its topics."""

    generations: list[Generation] = field(default_factory=list)
    """All topic generations, deleted ones included."""
    topics: dict[str, Generation] = field(default_factory=dict)
    """The topics that Kafka serves now."""
    tick: int = 0
    arrivals: dict[int, str] = field(default_factory=dict)
    """By tick when its record was written, in UTC, by the clock of this machine."""
    was_stale: bool = False
    """Whether it has ever given a stale answer."""
    stale: list["KafkaSnapshot"] = field(default_factory=list)
    """Stale answers, which are given first."""
    asked: Callable[[], None] = lambda: None
    """Called before each answer."""
    answers: dict[tuple[str, str], list[dict[int, PartitionSnapshot]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By cluster and topic id: every answer that was given."""

    def create(self, topic: str, partitions: int, cluster_id: str = "cluster-0") -> Generation:
        """Create a topic in place of one with the same name."""
        self.tick += 1
        logs = [Log() for _ in range(partitions)]
        generation = Generation(f"id-{len(self.generations)}", cluster_id, logs)
        self.generations.append(generation)
        self.serve(topic, generation)
        return generation

    def serve(self, topic: str, generation: Generation | None) -> None:
        """Serve this generation of a topic, or none."""
        if (now := self.topics.pop(topic, None)) is not None:
            now.was_away = now.was_away or now is not generation
        if generation is not None:
            self.topics[topic] = generation

    def write(self, log: Log, said: Sequence[tuple[Kind | None, int]]) -> None:
        """Append records, each with its minute; None is a transaction's marker."""
        for kind, minute in said:
            self.tick += 1
            self.arrivals[self.tick] = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
            record = None if kind is None else Record(kind, minute, self.tick)
            self._tell(log, log.end, record)
            log.end += 1

    def expire(self, log: Log, before: int) -> None:
        """Delete the first records, as retention does."""
        self.tick += 1
        for offset in range(log.earliest, before):
            log.expired[offset] = log.held.get(offset)
            self._tell(log, offset, None)
        log.earliest = max(log.earliest, before)

    def restore(self, log: Log) -> None:
        """Undo retention."""
        self.tick += 1
        for offset, record in log.expired.items():
            self._tell(log, offset, record)
        log.earliest = min([log.earliest, *log.expired])
        log.expired.clear()

    def compact(self, log: Log, offset: int) -> None:
        """Remove one record, as compaction does."""
        self.tick += 1
        self._tell(log, offset, None)

    def truncate(self, log: Log, end: int) -> None:
        """Remove the last records, as a broker does that comes back without them."""
        self.tick += 1
        for offset in range(end, log.end):
            self._tell(log, offset, None)
        log.end = end

    def _tell(self, log: Log, offset: int, record: Record | None) -> None:
        if record is None:
            log.held.pop(offset, None)
        else:
            log.held[offset] = record
        log.told.setdefault(offset, []).append((self.tick, record))

    def generation(self, cluster_id: str, topic_id: str) -> Generation:
        """A topic generation, current or not."""
        return next(
            x for x in self.generations if (x.cluster_id, x.topic_id) == (cluster_id, topic_id)
        )

    def log(self, cluster_id: str, topic_id: str, partition: int) -> Log:
        """A partition of any generation."""
        return self.generation(cluster_id, topic_id).logs[partition]

    def begins(
        self, cluster_id: str, topic_id: str, number: int, policies: Collection[str]
    ) -> set[int]:
        """The offsets of its answers at which counting may begin, by these start policies."""
        answers = self.answers[cluster_id, topic_id]
        seen = [answer[number] for answer in answers if number in answer]
        begin = {p.earliest if policy == "earliest" else p.end for p in seen for policy in policies}
        if any(number not in answer for answer in answers):
            begin.add(0)  # the partition was added
        return begin

    def was_gone(self, cluster_id: str, topic_id: str, number: int, offsets: range) -> bool:
        """Whether each of these offsets once could not be read.

        Where another topic took its place, the rest of the old one went with it.
        """
        generation = self.generation(cluster_id, topic_id)
        told = [generation.logs[number].told.get(offset, [(0, None)]) for offset in offsets]
        return generation.was_away or all(any(r is None for _, r in of) for of in told)

    def earliest(self, cluster_id: str, topic_id: str, number: int) -> int | None:
        """The highest first offset that it has answered; None for an unknown partition."""
        answers = self.answers[cluster_id, topic_id]
        held = [answer[number].earliest for answer in answers if number in answer]
        return max(held, default=None)

    def look(self) -> KafkaSnapshot:
        """The current snapshot of all topics."""
        topics = {}
        clusters = {generation.cluster_id for generation in self.topics.values()}
        cluster_id = min(clusters, default="cluster-0")
        for name, generation in self.topics.items():
            seen = [
                PartitionSnapshot(earliest=log.earliest, end=log.end) for log in generation.logs
            ]
            partitions = dict(enumerate(seen))
            topics[name] = TopicSnapshot(
                topic_id=generation.topic_id, cluster_id=cluster_id, partitions=partitions
            )
        return KafkaSnapshot(cluster_id=cluster_id, topics=topics)

    # --- as tally.kafka.client.Kafka

    def snapshot(self, topics: Iterable[str], **_: bool) -> KafkaSnapshot:
        """See :meth:`tally.kafka.client.Kafka.snapshot`."""
        self.asked()
        self.was_stale |= bool(self.stale)
        said = self.stale.pop(0) if self.stale else self.look()
        for topic in said.topics.values():
            self.answers[said.cluster_id, topic.topic_id].append(dict(topic.partitions))
        return KafkaSnapshot(
            cluster_id=said.cluster_id,
            topics={name: said.topics[name] for name in topics if name in said.topics},
        )

    def offsets_at(
        self, partitions: Iterable[TopicPartition], moment: datetime
    ) -> Mapping[TopicPartition, int | None]:
        """See :meth:`tally.kafka.client.Kafka.offsets_at`."""
        self.asked()
        late: dict[TopicPartition, int | None] = {}
        for p in partitions:
            logs = self.topics[p.topic].logs if p.topic in self.topics else []
            held = logs[p.partition].held.items() if p.partition < len(logs) else []
            late[p] = min((at for at, r in held if moment_of(r.time) >= moment), default=None)
        return late

    def rights(self, topics: Iterable[str]) -> Mapping[str, TopicRights]:
        """See :meth:`tally.kafka.client.Kafka.rights`."""
        known = [topic for topic in topics if topic in self.topics]
        return {topic: TopicRights(readable=True, compacted=False) for topic in known}


def moment_of(tick: int) -> datetime:
    return EPOCH + timedelta(seconds=tick)
