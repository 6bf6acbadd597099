"""Operations on a pipeline as values, so that a failing sequence can be printed.

Numbers that choose something are taken modulo how much there is to choose from, so that every
sequence is possible and means the same when it is played again.
"""

from dataclasses import dataclass, field

from tests.properties.kafka_model import Kind

DELIVERIES = ("batch", "partition", "rows", "procedure", "files")

Said = tuple[Kind | None, int]


@dataclass(frozen=True, slots=True)
class Operation:
    """What the pipeline, its operators, or Kafka's may do."""


# --- Kafka


@dataclass(frozen=True, slots=True)
class Produce(Operation):
    """Records are written to a partition; a kind of None is a transaction's marker."""

    partition: int
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Expire(Operation):
    """Retention deletes some records."""

    partition: int
    records: int


@dataclass(frozen=True, slots=True)
class Restore(Operation):
    """Records that retention deleted are restored."""

    partition: int


@dataclass(frozen=True, slots=True)
class Compact(Operation):
    """Compaction removes one record."""

    partition: int
    which: int


@dataclass(frozen=True, slots=True)
class Truncate(Operation):
    """The last records are truncated; new ones get their offsets."""

    partition: int
    records: int
    then: tuple[Said, ...] = ()


class Delete(Operation):
    """The topic is deleted."""


@dataclass(frozen=True, slots=True)
class Create(Operation):
    """The topic is deleted and created again, on a cluster of one's choice."""

    partitions: int
    cluster: int
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class BringBack(Operation):
    """Kafka serves an earlier generation of the topic again."""

    generation: int


class AddPartition(Operation):
    """The topic gets another partition."""


@dataclass(frozen=True, slots=True)
class Stale(Operation):
    """Kafka's next answers are stale."""

    answers: int
    partitions: int
    records: int


# --- time, and the configuration


class Age(Operation):
    """Time passes until no claim is in force any more."""


@dataclass(frozen=True, slots=True)
class SetClock(Operation):
    """From now on the clock is wrong by so many hours."""

    hours: int


@dataclass(frozen=True, slots=True)
class Configure(Operation):
    """Another configuration from now on; None leaves a key as it is."""

    levels: tuple[str, ...] | None = None
    line_format: str | None = None
    offsets: str | None = None
    limit: int | None = None
    delivery: str | None = None


# --- the pipeline


class Plan(Operation):
    """An ingest batch is planned or resumed."""


class RunMinute(Operation):
    """The open ingest batch is run, if there is one."""


class Prune(Operation):
    """The ledger is pruned."""


class Audit(Operation):
    """The ledger is audited."""


@dataclass(frozen=True, slots=True)
class OnOne(Operation):
    """Concerns one batch, worker or replay."""

    which: int


class Run(OnOne):
    """A batch of any state is run."""


class RunOpen(OnOne):
    """A planned batch is run."""


class Stop(OnOne):
    """A worker reads a planned batch and is stopped before its commit; it may resume later."""


class GoOn(OnOne):
    """A stopped worker resumes."""


class Kill(OnOne):
    """A worker claims a planned batch and is killed."""


class RunReplay(OnOne):
    """The planned batches of a replay are run."""


class RunReplayBatch(OnOne):
    """Any batch of a replay is run, and replanned if needed."""


# --- decisions of an operator


class Abandon(OnOne):
    """An operator abandons a batch."""


class Replan(OnOne):
    """A batch of a replay is replanned without need."""


class Cancel(OnOne):
    """A replay is cancelled."""


@dataclass(frozen=True, slots=True)
class Accept(Operation):
    """An operator accepts one open loss, or all."""

    loss: int | None


@dataclass(frozen=True, slots=True)
class Adopt(Operation):
    """An operator adopts the topic's current generation."""

    start: str


@dataclass(frozen=True, slots=True)
class Span:
    """A range in sixteenths of the partition's end."""

    partition: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class AskRanges(Operation):
    """A replay of ranges is recorded."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class AskAll(Operation):
    """A replay of everything possible, of one partition or of all, is recorded."""

    partition: int | None = None
    from_start: bool = False
    """Whether it begins at offset 0, below the pipeline's start."""


class AskBatch(OnOne):
    """A replay of a batch is recorded."""


@dataclass(frozen=True, slots=True)
class AskMinutes(Operation):
    """A replay of minutes is recorded."""

    first: int
    minutes: int


@dataclass(frozen=True, slots=True)
class AskTimes(Operation):
    """A replay by record times is recorded."""

    since: int
    ticks: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """The initial state of an example."""

    partitions: int = 2
    start: str = "earliest"
    offsets: str = "dense"
    limit: int = 1000
    delivery: str = "batch"
    said: tuple[Said, ...] = field(default=())
