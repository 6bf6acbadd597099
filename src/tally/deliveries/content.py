"""What holds the lines of sets: rows of a table, or files. A new kind of content is added here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tally.aggregates.counts import KeptLine
from tally.mysql.transactions import Transaction

Run = Callable[[Callable[[Transaction], Any]], Any]
"""Runs work that may be done twice in a transaction, and returns what it returns."""

PLACE: Final = (
    "set_id, segment_id, batch_id, topic, cluster_id, topic_id, partition_id, from_offset,"
    " until_offset"
)
"""The columns of a :class:`SetPlace`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SetPlace:
    """A set, and the range of records whose lines it has."""

    set_id: int
    """Its key."""
    segment_id: int
    """The segment."""
    batch_id: int
    """The segment's batch."""
    topic: str
    """The topic."""
    cluster_id: str
    """Kafka's cluster."""
    topic_id: str
    """Kafka's id of the topic."""
    partition_id: int
    """The partition."""
    from_offset: int
    """The first offset of the segment."""
    until_offset: int
    """The offset behind its last one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """Whose lines are in some tables or in a folder, which say so themselves."""

    pipeline: str
    """The pipeline."""
    ledger_id: str
    """The ledger that decides which lines are shown."""

    @property
    def name(self) -> str:
        """The pipeline and the ledger in one phrase."""
        return f"pipeline {self.pipeline}, ledger {self.ledger_id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What is found of a set when it is looked at."""

    minutes: Mapping[str, int]
    """How many lines of each minute, ``YYYY-MM-DD HH:MM:00``."""
    trouble: str = ""
    """Why its lines cannot be read; '' when they can."""


class LineWriter(Protocol):
    """Writes the lines of one open set."""

    @property
    def lines_at_once(self) -> int:
        """With as many lines ``write`` is called at the latest."""

    @property
    def bytes_at_once(self) -> int:
        """With as many bytes of values ``write`` is called at the latest."""

    def write(self, lines: Sequence[KeptLine]) -> None:
        """Write some lines, in order of offset.

        Raises:
            FencedError: The set was dropped. Files find it only when the set is sealed.
            StatementError: A line is longer than the server takes.
        """

    def close(self) -> None:
        """Make what was written safe, before the set is sealed."""

    def discard(self) -> None:
        """Delete what was written, as the set was dropped, and may be forgotten already."""


class Content(Protocol):
    """What holds the lines of one pipeline's sets."""

    @property
    def view(self) -> str:
        """The view by which readers know the live sets; safe in statements."""

    @property
    def noun(self) -> str:
        """What the comment of the tables says that they have."""

    @property
    def version(self) -> str:
        """Of the view: with another one it is made again."""

    @property
    def kept_s(self) -> int:
        """Seconds for which the lines of a dropped set are kept, for those who still read them."""

    def tables(self) -> Mapping[str, str]:
        """The statements that create the tables beside that of the sets, by name."""

    def view_statement(self, sets: str) -> str:
        """The statement that creates or replaces the view of live sets."""

    def lacks(self, tx: Transaction) -> str:
        """What else is needed and is not there, as a phrase; '' when all is.

        Raises:
            ConfigError: It is another pipeline's.
        """

    @property
    def remedy(self) -> str:
        """What to do when something else is not there."""

    def is_moved(self, comment: str) -> bool:
        """Whether tables with such a comment are of lines in another place."""

    def prepare(self, tx: Transaction, sets: str, kept: Sequence[SetPlace] | None) -> None:
        """Create what else is needed; what is there is left as it is.

        Args:
            tx: An open transaction.
            sets: The table of sets.
            kept: The latest live sets with lines, if the ledger has segments with lines; else None.

        Raises:
            ConfigError: It is another pipeline's, or the lines so far must be elsewhere.
        """

    def writer(self, place: SetPlace, run_locked: Run, packet_bytes: int) -> LineWriter:
        """What writes the lines of an open set.

        Args:
            place: The set.
            run_locked: Runs work while the set cannot be dropped.
            packet_bytes: The longest statement that the server takes.
        """

    def count(self, tx: Transaction, place: SetPlace) -> int:
        """How many lines a set has."""

    def find(self, tx: Transaction, places: Sequence[SetPlace]) -> Mapping[int, Found]:
        """What there is of some sets, by key; those without a line may be left out."""

    def delete(self, place: SetPlace, run: Run) -> None:
        """Delete the lines of a dropped set; nothing happens when there are none."""

    def tell(self, live: Callable[[], Iterator[SetPlace]]) -> None:
        """Tell readers that do not ask the database which sets are live.

        Args:
            live: Asks the database for live sets that have lines.
        """

    def orphans(self, known: Callable[[Sequence[int]], set[int]]) -> int:
        """Delete lines that are of no set; how many sets they were of.

        Args:
            known: Tells which of some keys are those of sets.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptMinute:
    """How many rows of a live set are of one minute."""

    segment_id: int
    """The segment."""
    set_id: int
    """The set."""
    cluster_id: str
    """Kafka's cluster."""
    topic_id: str
    """Kafka's id of the topic."""
    partition_id: int
    """The partition."""
    from_offset: int
    """The first offset of the segment."""
    log_time: str | None
    """The minute, ``YYYY-MM-DD HH:MM:00``; None for a set without rows."""
    rows: int
    """How many."""
    trouble: str = ""
    """Why the lines of the set cannot be read; '' when they can."""


def kept_minutes(place: SetPlace, found: Found) -> Iterator[KeptMinute]:
    """What was found of a set; one minute without a time when that is nothing."""
    minutes: dict[str | None, int] = dict(sorted(found.minutes.items()))
    for log_time, lines in (minutes or {None: 0}).items():
        yield KeptMinute(
            segment_id=place.segment_id,
            set_id=place.set_id,
            cluster_id=place.cluster_id,
            topic_id=place.topic_id,
            partition_id=place.partition_id,
            from_offset=place.from_offset,
            log_time=log_time,
            rows=lines,
            trouble=found.trouble,
        )
