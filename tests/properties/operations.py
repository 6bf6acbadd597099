"""Operations on a pipeline as values, so that a failing sequence can be printed.

Numbers that choose something are taken modulo how much there is to choose from, so that every
sequence is possible and means the same when it is played again.
"""

from dataclasses import dataclass, field

from tests.properties.kafka_model import Kind

DELIVERIES = ("batch", "partition", "rows", "procedure", "files")

Said = tuple[Kind | None, int]


@dataclass(frozen=True, slots=True)
class Produce:
    """Records are written to a partition; a kind of None is a transaction's marker."""

    partition: int
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """Retention deletes some records."""

    partition: int
    records: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Records that retention deleted are restored."""

    partition: int


@dataclass(frozen=True, slots=True)
class Compact:
    """Compaction removes one record."""

    partition: int
    which: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """The last records are truncated; new ones get their offsets."""

    partition: int
    records: int
    then: tuple[Said, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """The topic is deleted."""


@dataclass(frozen=True, slots=True)
class Create:
    """The topic is deleted and created again, on a cluster of one's choice."""

    partitions: int
    cluster: int
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class BringBack:
    """Kafka serves an earlier generation of the topic again."""

    generation: int


@dataclass(frozen=True, slots=True)
class AddPartition:
    """The topic gets another partition."""


@dataclass(frozen=True, slots=True)
class Stale:
    """Kafka's next answers are stale."""

    answers: int
    partitions: int
    records: int


@dataclass(frozen=True, slots=True)
class Configure:
    """Another configuration from now on; None leaves a key as it is."""

    levels: tuple[str, ...] | None = None
    line_format: str | None = None
    offsets: str | None = None
    limit: int | None = None
    delivery: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """An ingest batch is planned or resumed."""


@dataclass(frozen=True, slots=True)
class RunMinute:
    """The open ingest batch is run, if there is one."""


@dataclass(frozen=True, slots=True)
class Run:
    """A batch of any state is run."""

    batch: int


@dataclass(frozen=True, slots=True)
class RunOpen:
    """A planned batch is run."""

    batch: int


@dataclass(frozen=True, slots=True)
class Stop:
    """A worker reads a planned batch and is stopped before its commit; it may resume later."""

    batch: int


@dataclass(frozen=True, slots=True)
class GoOn:
    """A stopped worker resumes."""

    worker: int


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker claims a planned batch and is killed."""

    batch: int


@dataclass(frozen=True, slots=True)
class Age:
    """Time passes until no claim is in force any more."""


@dataclass(frozen=True, slots=True)
class SetClock:
    """From now on the clock is wrong by so many hours."""

    hours: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """An operator abandons a batch."""

    batch: int


@dataclass(frozen=True, slots=True)
class Accept:
    """An operator accepts one open loss, or all."""

    loss: int | None


@dataclass(frozen=True, slots=True)
class Adopt:
    """An operator adopts the topic's current generation."""

    start: str


@dataclass(frozen=True, slots=True)
class Span:
    """A range in sixteenths of the partition's end."""

    partition: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class AskRanges:
    """A replay of ranges is recorded."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class AskAll:
    """A replay of everything possible, of one partition or of all, is recorded."""

    partition: int | None = None
    from_start: bool = False
    """Whether it begins at offset 0, below the pipeline's start."""


@dataclass(frozen=True, slots=True)
class AskBatch:
    """A replay of a batch is recorded."""

    batch: int


@dataclass(frozen=True, slots=True)
class AskMinutes:
    """A replay of minutes is recorded."""

    first: int
    minutes: int


@dataclass(frozen=True, slots=True)
class AskTimes:
    """A replay by record times is recorded."""

    since: int
    ticks: int


@dataclass(frozen=True, slots=True)
class RunReplay:
    """The planned batches of a replay are run."""

    replay: int


@dataclass(frozen=True, slots=True)
class RunReplayBatch:
    """Any batch of a replay is run, and replanned if needed."""

    batch: int


@dataclass(frozen=True, slots=True)
class Replan:
    """A batch of a replay is replanned without need."""

    batch: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """A replay is cancelled."""

    replay: int


@dataclass(frozen=True, slots=True)
class Prune:
    """The ledger is pruned."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The ledger is audited."""


Ask = AskRanges | AskAll | AskBatch | AskMinutes | AskTimes

Operation = (
    Produce
    | Expire
    | Restore
    | Compact
    | Truncate
    | Delete
    | Create
    | BringBack
    | AddPartition
    | Stale
    | Configure
    | Plan
    | RunMinute
    | Run
    | RunOpen
    | Stop
    | GoOn
    | Kill
    | Age
    | SetClock
    | Abandon
    | Accept
    | Adopt
    | Ask
    | RunReplay
    | RunReplayBatch
    | Replan
    | Cancel
    | Prune
    | Audit
)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The initial state of an example."""

    partitions: int = 2
    start: str = "earliest"
    offsets: str = "dense"
    limit: int = 1000
    delivery: str = "batch"
    said: tuple[Said, ...] = field(default=())
