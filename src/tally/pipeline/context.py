"""What the steps of a pipeline need from outside, handed in as one value.

Made once at the edge (command line, Airflow, Spark's driver) by :mod:`tally.app.context`. A test
makes one of its own, with a fake of :mod:`tally.testing` where it needs one.
"""

import getpass
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from tally import __version__
from tally.aggregates.counts import CountRequest, Counts
from tally.clock import Clock
from tally.config.settings import Settings
from tally.ledger.batches import Requester
from tally.model import KafkaSnapshot, Record, TopicPartition, TopicRights
from tally.mysql.transactions import Database


class KafkaPort(Protocol):
    """What the steps need from Kafka; :class:`tally.kafka.client.Kafka` implements it."""

    def snapshot(self, topics: Iterable[str], *, read_committed: bool = True) -> KafkaSnapshot:
        """Ids, earliest and end offsets of the topics, as of now."""

    def offsets_at(
        self, partitions: Iterable[TopicPartition], moment: datetime
    ) -> Mapping[TopicPartition, int | None]:
        """The offset of each partition's first record at or after a moment."""

    def records_at(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        records_max: int = 1,
        read_committed: bool = True,
    ) -> Mapping[TopicPartition, Sequence[Record]]:
        """The first records at or after an offset of each partition."""

    def retention(self, topics: Iterable[str]) -> Mapping[str, timedelta | None]:
        """How long each topic keeps its records; None for one that keeps them by size alone."""

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], note: str = ""
    ) -> None:
        """Mirror offsets into a consumer group, each with a note."""

    def notes_of(self, group: str) -> Mapping[TopicPartition, str]:
        """The notes beside the offsets of a consumer group."""

    def rights(self, topics: Iterable[str]) -> Mapping[str, TopicRights]:
        """What these credentials may do with the topics; unknown topics are left out."""


class Reader(Protocol):
    """Reads and counts ranges; :class:`tally.spark.counting.SparkReader` implements it."""

    def count(self, request: CountRequest) -> AbstractContextManager[Counts]:
        """The counts of the ranges; they are released at the end of the ``with`` block."""

    def count_each(
        self,
        requests: Sequence[CountRequest],
        work: Callable[[CountRequest, Counts], Any],
        open_set: Callable[[CountRequest], Any] | None = None,
    ) -> Iterator[tuple[CountRequest, Any]]:
        """What ``work`` makes of the counts of each request's only range, where it is read.

        With ``open_set`` the counted lines are kept there, too.
        """


OpenReader = Callable[[], AbstractContextManager[Reader]]
"""Opens a reader; called only when there is something to read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How often and how long a step asks again before it accepts an answer or gives up."""

    doubt_tries: int = 3
    """How often Kafka is asked before an answer that would block a partition is accepted."""
    doubt_pause_s: float = 1.0
    """Seconds between two tries; Kafka may answer from stale metadata."""
    outcome_s: float = 120.0
    """Seconds for which the ledger is asked whether a COMMIT without an answer was applied."""


def whoami() -> str:
    """``user@host:pid``, for the ledger."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no passwd entry
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"


def this_process() -> Requester:
    """The default requester: this process, with the installed version."""
    return Requester(name=whoami(), version=__version__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Configuration, servers and requester of a step."""

    settings: Settings
    """The configuration."""
    database: Database
    """Where the ledger and the counts are; its clock is used by all steps."""
    kept_in: Database | None = None
    """Where lines are kept, if not there."""
    kafka: KafkaPort
    """The cluster."""
    open_reader: OpenReader
    """How records are read."""
    elsewhere: "OpenContext | None" = None
    """Makes a context of the same servers in another process, where nothing is read; picklable.
    None where no step runs in another one."""
    requester: Requester = field(default_factory=this_process)
    """Who runs the step, and with which version of the code."""
    patience: Patience = field(default_factory=Patience)
    """How long to wait."""

    @property
    def rows(self) -> Database:
        """Where lines are kept."""
        return self.kept_in or self.database

    @property
    def clock(self) -> Clock:
        """The database's clock, so that a step reads and writes times of one clock."""
        return self.database.clock


OpenContext = Callable[[], Context]
"""Makes a context in another process; picklable."""
