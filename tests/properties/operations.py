"""Operations on a pipeline as values, so that a failing sequence can be printed.

Numbers that choose something are taken modulo how much there is to choose from, so that every
sequence is possible and means the same when it is played again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.properties.kafka_model import Kind

DELIVERIES = ("batch", "partition", "rows", "procedure", "files")

Said = tuple[Kind | None, int]


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of a method of the pipeline under test: ``RunMinute()`` calls ``_do_run_minute``."""

    name: str
    about: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]

    def __repr__(self) -> str:
        words = [*map(repr, self.about), *(f"{key}={value!r}" for key, value in self.options)]
        return f"op.{self.name}({', '.join(words)})"


def _named(name: str) -> Callable[..., Operation]:
    return lambda *about, **options: Operation(name, about, tuple(options.items()))


class Span(NamedTuple):
    """A range in sixteenths of the partition's end."""

    partition: int
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """The initial state of an example."""

    partitions: int = 2
    start: str = "earliest"
    offsets: str = "dense"
    limit: int = 1000
    delivery: str = "batch"
    said: tuple[Said, ...] = ()


# Kafka.
Produce = _named("Produce")  # records are written; a kind of None is a transaction's marker
Expire = _named("Expire")  # retention deletes the first records of a partition
Restore = _named("Restore")  # records that retention deleted are restored
Compact = _named("Compact")  # compaction removes one record
Truncate = _named("Truncate")  # the last records are removed; new ones get their offsets
Delete = _named("Delete")  # the topic is deleted
Create = _named("Create")  # the topic is deleted and created again, on a cluster of one's choice
BringBack = _named("BringBack")  # Kafka serves an earlier generation of the topic again
AddPartition = _named("AddPartition")
Stale = _named("Stale")  # Kafka's next answers are stale

# Time, and the configuration.
Age = _named("Age")  # time passes until no claim is in force any more
SetClock = _named("SetClock")  # from now on the clock is wrong by so many hours
Configure = _named("Configure")  # another configuration; None leaves a key as it is

# The database.
Dump = _named("Dump")  # it is dumped, with the folder of kept files
RestoreDump = _named("RestoreDump")  # it is again as it was dumped; workers run on

# The pipeline.
Plan = _named("Plan")  # an ingest batch is planned or resumed
RunMinute = _named("RunMinute")  # the open ingest batches are run
Run = _named("Run")  # a batch of any state is run
RunOpen = _named("RunOpen")  # a planned batch is run
Stop = _named("Stop")  # a worker reads a batch, and is stopped before its commit; it may resume
GoOn = _named("GoOn")  # a stopped worker resumes
Kill = _named("Kill")  # a worker claims a planned batch and is killed
RunReplay = _named("RunReplay")  # the planned batches of a replay are run
RunReplayBatch = _named("RunReplayBatch")  # any batch of a replay is run, and replanned if needed
Prune = _named("Prune")
Audit = _named("Audit")

# Decisions of an operator.
Abandon = _named("Abandon")  # a batch is abandoned
Replan = _named("Replan")  # a batch of a replay is replanned without need
Cancel = _named("Cancel")  # a replay is cancelled
Accept = _named("Accept")  # one open loss is accepted, or all
Adopt = _named("Adopt")  # the topic's current generation is adopted

# A replay is recorded.
AskRanges = _named("AskRanges")
AskAll = _named("AskAll")  # of everything possible, of one partition or of all
AskBatch = _named("AskBatch")
AskMinutes = _named("AskMinutes")
AskTimes = _named("AskTimes")  # by record times
