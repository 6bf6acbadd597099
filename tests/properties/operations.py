"""What may happen to a pipeline, as values: a failing sequence prints itself.

Numbers that choose something are taken modulo how much there is to choose from, so that every
sequence is possible and means the same when it is played again.
"""

from dataclasses import dataclass, field

from tests.properties.kafka_model import Kind

Said = tuple[Kind | None, int]


@dataclass(frozen=True, slots=True)
class Produce:
    """Records are written to a partition; a kind of None is a transaction's marker."""

    partition: int
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Expire:
    """Retention takes some records."""

    partition: int
    records: int


@dataclass(frozen=True, slots=True)
class Restore:
    """What retention took is there again."""

    partition: int


@dataclass(frozen=True, slots=True)
class Compact:
    """One record goes, its neighbours stay."""

    partition: int
    which: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """The last records go, and others take their offsets."""

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
    """An earlier generation of the topic is what Kafka has now."""

    generation: int


@dataclass(frozen=True, slots=True)
class AddPartition:
    """The topic grows."""


@dataclass(frozen=True, slots=True)
class Stale:
    """Kafka's next answers are old ones."""

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


@dataclass(frozen=True, slots=True)
class Plan:
    """A minute begins."""


@dataclass(frozen=True, slots=True)
class RunMinute:
    """The minute's batch is run, if one is planned."""


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
    """A worker reads a planned batch and is stopped before its commit; it may go on later."""

    batch: int


@dataclass(frozen=True, slots=True)
class GoOn:
    """A stopped worker goes on."""

    worker: int


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker claims a planned batch and is killed."""

    batch: int


@dataclass(frozen=True, slots=True)
class Age:
    """So much time passes that no attempt is waited for any longer."""


@dataclass(frozen=True, slots=True)
class SetClock:
    """From now on the clock is wrong by so many hours."""

    hours: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """A person gives a batch up."""

    batch: int


@dataclass(frozen=True, slots=True)
class Accept:
    """A person accepts one open loss, or all."""

    loss: int | None


@dataclass(frozen=True, slots=True)
class Adopt:
    """A person adopts the topic as Kafka has it now."""

    start: str


@dataclass(frozen=True, slots=True)
class Span:
    """A range as a fraction of what could be meant: in sixteenths of the partition's end."""

    partition: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class AskRanges:
    """A replay of ranges is written down."""

    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class AskAll:
    """A replay of all that can be, of one partition or of all of them."""

    partition: int | None = None
    from_start: bool = False
    """From offset 0, below the pipeline's start too."""


@dataclass(frozen=True, slots=True)
class AskBatch:
    """A replay of what a batch has counted."""

    batch: int


@dataclass(frozen=True, slots=True)
class AskMinutes:
    """A replay of what has lines of some minutes."""

    first: int
    minutes: int


@dataclass(frozen=True, slots=True)
class AskTimes:
    """A replay by record times."""

    since: int
    ticks: int


@dataclass(frozen=True, slots=True)
class RunReplay:
    """What is left of a replay is counted."""

    replay: int


@dataclass(frozen=True, slots=True)
class RunReplayBatch:
    """Any batch of a replay is counted, planned anew where that is needed."""

    batch: int


@dataclass(frozen=True, slots=True)
class Replan:
    """A batch of a replay is planned anew without need."""

    batch: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """All that is left of a replay is given up."""

    replay: int


@dataclass(frozen=True, slots=True)
class Prune:
    """What Kafka no longer holds is folded."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The ledger is proved, on a snapshot."""


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
    """What an example begins with."""

    partitions: int = 2
    start: str = "earliest"
    offsets: str = "dense"
    limit: int = 1000
    said: tuple[Said, ...] = field(default=())
