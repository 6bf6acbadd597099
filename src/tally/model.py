"""The terms of the ledger as value types.

Pure: imports neither Spark, Kafka, MySQL nor Airflow. Operational times are aware (UTC); the only
wall clock is a log line's own ``log_time``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class BatchKind(StrEnum):
    """``ingest`` moves the committed offsets, ``replay`` does not, ``fold`` reads no records."""

    INGEST = "ingest"
    REPLAY = "replay"
    FOLD = "fold"


class BatchState(StrEnum):
    """A batch is planned once and ends committed or abandoned."""

    PLANNED = "planned"
    COMMITTED = "committed"
    ABANDONED = "abandoned"


class SegmentState(StrEnum):
    """A segment's contribution is part of the result only while it is live."""

    PLANNED = "planned"
    LIVE = "live"
    SUPERSEDED = "superseded"
    ABANDONED = "abandoned"
    FOLDED = "folded"


class ReplayState(StrEnum):
    """A replay is open while one of its batches is planned."""

    OPEN = "open"
    DONE = "done"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True, order=True, slots=True)
class TopicPartition:
    """One partition of a Kafka topic."""

    topic: str
    """The topic's name."""
    partition: int
    """The partition's number, from 0."""

    def __post_init__(self) -> None:
        if not self.topic or self.partition < 0:
            raise ValueError(f"{self.topic!r}/{self.partition} is no partition of a topic")

    def __str__(self) -> str:
        """``alog/0``."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, kw_only=True, order=True, slots=True)
class OffsetRange:
    """The half-open range ``[from_offset, until_offset)`` of one partition; never empty."""

    partition: TopicPartition
    """The partition of the range."""
    from_offset: int
    """First offset of the range."""
    until_offset: int
    """First offset after the range."""

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset < self.until_offset:
            raise ValueError(f"{self} is no offset range")

    @property
    def offsets(self) -> int:
        """How many offsets the range spans; it may hold fewer records."""
        return self.until_offset - self.from_offset

    @property
    def place(self) -> str:
        """``alog/0``."""
        return str(self.partition)

    @property
    def span(self) -> str:
        """``[300, 310)``."""
        return f"[{self.from_offset}, {self.until_offset})"

    def __str__(self) -> str:
        """``alog/0 [300, 310)``."""
        return f"{self.place} {self.span}"


class LossCause(StrEnum):
    """Why records that the ledger relies on are not in Kafka; each needs a decision of its own."""

    EXPIRED = "expired"
    """Kafka's first offset has passed ``next_offset``. Once accepted, counting continues there."""
    TRUNCATED = "truncated"
    """Kafka's end fell behind ``next_offset``, where counting continues once this is accepted."""
    MISSING = "missing"
    """Offsets of a range hold no record; once accepted, the records that are there are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Offsets whose records are gone; they are skipped only after an operator has accepted it."""

    cause: LossCause
    """Why the records are gone."""
    range: OffsetRange
    """The offsets. Of :attr:`LossCause.MISSING` the whole range that was read, with its records."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """The first and the committed offset of one partition, and its losses."""

    start_offset: int
    """Offset at which counting began."""
    next_offset: int
    """The committed offset: the first one that is not counted yet."""
    seen_end: int | None = field(default=None, compare=False)
    """An end that a plan has seen: once all before it is counted, so is what Kafka had then."""
    open_loss: Loss | None = None
    """The loss that waits for a decision; nothing is read before."""
    accepted_losses: tuple[Loss, ...] = ()
    """Those that affect what is read: a truncation or missing offsets at ``next_offset``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """What Kafka identifies a generation of a topic by."""

    topic_id: str
    """Kafka's id of the topic; a topic that is created again has a new one."""
    cluster_id: str
    """Kafka's id of the cluster that the topic is on."""

    def is_same(self, other: "Generation") -> bool:
        """Whether both are of one topic generation."""
        return (self.topic_id, self.cluster_id) == (other.topic_id, other.cluster_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTopic(Generation):
    """The current generation of a topic, as the ledger knows it."""

    generation_id: int
    """The ledger's key of the generation."""
    positions: Mapping[int, Position]
    """By partition number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment(Generation):
    """One offset range, once planned: the unit that is counted, committed, superseded."""

    segment_id: int
    """The ledger's key."""
    range: OffsetRange
    """What is read."""
    state: SegmentState
    """Its state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedSegment(Segment):
    """A segment with what its commit depends on."""

    missing_accepted: bool = False
    """Whether an operator has accepted that offsets of this range hold no record."""
    records_replaced: int = 0
    """Records of the segments that it is to replace; Kafka must still hold as many."""
    offsets_replaced: int = 0
    """Offsets of those segments; the rest of the range was never counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """Segments that commit together. Its ranges never change after they are planned."""

    batch_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline it belongs to."""
    kind: BatchKind
    """Whether it moves the committed offsets."""
    replay_id: int | None = None
    """The replay that it is part of; None for an ingest batch."""
    state: BatchState
    """Its state."""
    attempt: int
    """How often it was claimed; only the newest attempt may commit."""
    planned_at: datetime
    """When its ranges were fixed (UTC)."""
    run_id: str | None = None
    """Airflow's run id, when Airflow asked; otherwise of a replay an id of the call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch(BatchPlan):
    """A batch with what is needed to run and to commit it."""

    claimed_at: datetime | None
    """When the running attempt began (UTC); None when it has failed, or none has begun."""
    segments: tuple[PlannedSegment, ...]
    """In order of topic, partition and offset."""
    claimed_by: str | None = None
    """Who began the newest attempt; None when none has begun."""
    claim_token: str | None = None
    """Random, and of the newest attempt: a ledger that was restored numbers attempts again."""
    is_of_partition: bool = False
    """Whether it is of one partition alone, and may be open beside those of others."""

    @property
    def claim(self) -> tuple[int, str | None]:
        """The fencing token: what is the batch's newest claim in the ledger may commit."""
        return self.attempt, self.claim_token

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What it reads."""
        return tuple(segment.range for segment in self.segments)

    @property
    def offsets(self) -> int:
        """How many offsets the batch spans."""
        return sum(r.offsets for r in self.ranges)


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentTotals:
    """What a read found in one segment, added up over its minutes."""

    records: int
    """Records read: ``matched + unmatched + malformed``."""
    matched: int
    """Lines at a counted level."""
    unmatched: int
    """Lines that were understood and are not counted: another level, or filtered out."""
    malformed: int
    """Records that could not be understood."""
    first_offset: int | None = None
    """Smallest offset seen; None when nothing was read."""
    last_offset: int | None = None
    """Largest offset seen; None when nothing was read."""
    continuations: int | None = 0
    """Unmatched records that begin no line; None where they were not counted by themselves."""

    def __post_init__(self) -> None:
        parts = self.matched + self.unmatched + self.malformed
        if self.records != parts or (self.continuations or 0) > self.unmatched:
            raise ValueError(f"the counts do not add up: {self}")

    def __add__(self, other: "SegmentTotals") -> "SegmentTotals":
        """Both together."""
        first = [o for o in (self.first_offset, other.first_offset) if o is not None]
        last = [o for o in (self.last_offset, other.last_offset) if o is not None]
        return SegmentTotals(
            records=self.records + other.records,
            matched=self.matched + other.matched,
            unmatched=self.unmatched + other.unmatched,
            malformed=self.malformed + other.malformed,
            first_offset=min(first, default=None),
            last_offset=max(last, default=None),
            continuations=(self.continuations or 0) + (other.continuations or 0),
        )


EMPTY_TOTALS = SegmentTotals(records=0, matched=0, unmatched=0, malformed=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionSnapshot:
    """What Kafka reported of one partition at one moment."""

    earliest: int
    """First offset Kafka still holds."""
    end: int
    """First offset not yet readable: the last stable offset under read_committed."""
    unstable: int = 0
    """Offsets from there on that are written: of open transactions, and what follows them."""

    def __post_init__(self) -> None:
        if not 0 <= self.earliest <= self.end:
            raise ValueError(f"earliest {self.earliest} and end {self.end} contradict each other")

    @property
    def written_end(self) -> int:
        """First offset not yet written: the high watermark."""
        return self.end + self.unstable


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicSnapshot(Generation):
    """What Kafka reported of one topic at one moment."""

    partitions: Mapping[int, PartitionSnapshot]
    """By partition number; never empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaSnapshot:
    """What Kafka reported of a pipeline's topics at one moment."""

    cluster_id: str
    """The cluster's id."""
    topics: Mapping[str, TopicSnapshot]
    """By topic name; a topic Kafka does not know is not in it."""

    def partition(
        self, where: TopicPartition, of: Generation | None = None
    ) -> PartitionSnapshot | None:
        """What Kafka holds of a partition, of any generation of its topic or of one.

        None when Kafka does not answer for it, or has another generation.
        """
        topic = self.topics.get(where.topic)
        is_other = topic is None or (of is not None and not of.is_same(topic))
        return None if topic is None or is_other else topic.partitions.get(where.partition)


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicRights:
    """What these credentials may do with a topic, and how Kafka keeps it."""

    readable: bool
    """Whether its records may be read."""
    compacted: bool | None
    """Whether old records of a key are removed; None when its settings may not be read."""
