"""The request for a read, and its counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.model import Batch, OffsetRange, SegmentTotals, TopicPartition


class Contribution(NamedTuple):
    """What one partition's range holds for one minute and one value of each label."""

    partition: TopicPartition
    """The partition of the lines."""
    log_time: str
    """The minute on the lines' own clock, ``YYYY-MM-DD HH:MM:00``."""
    sums: tuple[int, ...]
    """How many counted lines, and what the pipeline measures of them."""
    labels: tuple[str, ...] = ()
    """A value for each label of the pipeline, in order; '' where the line has none."""
    part: OffsetRange | None = None
    """In a recount the part of the range that holds the lines."""


LEDGER_ORDER: Final = attrgetter("partition.topic", "partition.partition", "log_time", "labels")
"""The order in which contributions are written: a server takes many of them several times as long
in any other, as it reads and writes its pages again and again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """A record that could not be understood."""

    partition: TopicPartition
    """The record's partition."""
    offset: int
    """Its offset."""
    reason: str
    """What is wrong with it, a :class:`tally.lines.format.MalformedReason`."""
    value: bytes | None
    """Its first bytes; None for a record without a value."""
    value_bytes: int | None
    """How many bytes it has in Kafka."""
    written_at: datetime | None = None
    """Its timestamp; None without one, and for one that an older release has kept."""
    log_time: str | None = None
    """The minute that its line says, else that of its timestamp, ``YYYY-MM-DD HH:MM:00``."""


class KeptLine(NamedTuple):
    """A counted line, as a row."""

    offset: int
    """Its offset."""
    log_time: str
    """The minute it was counted in, ``YYYY-MM-DD HH:MM:00``."""
    value: bytes | None
    """The record's value."""
    key_digest: bytes | None
    """SHA-256 of the fields of ``row_key``; None without it, or where one of them is missing."""


KEPT: Final = ("offset", "minute", "value", "key_digest")
"""The columns of kept lines in Spark: those of a :class:`KeptLine`, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineSet:
    """The kept lines of one segment, all of them, written by one Spark task."""

    set_id: int
    """Its key on the server where lines are kept."""
    lines: int
    """How many lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountRequest:
    """What is to be read and counted."""

    pipeline: Pipeline
    """Line format, levels and reader options."""
    ranges: Sequence[OffsetRange]
    """At most one for each partition."""
    batch: Batch | None = None
    """The batch for which it is read, as it was claimed; None when nothing is to be committed."""
    rows_before: int = 0
    """Rows that it is to replace, where labels limit them; as many are never too many."""
    parts: Sequence[OffsetRange] = ()
    """Of a recount: what the ranges consist of; each part is counted by itself. The counts are only
    compared with those of batches: nothing is raised when records are missing or malformed, and
    each record is judged by itself, a second way to the same counts."""
    letters_max: int | None = None
    """Of a range with more malformed records none is kept; None without a limit."""

    @property
    def is_recount(self) -> bool:
        """Whether the counts are only compared."""
        return bool(self.parts)

    @property
    def claimed(self) -> Batch:
        """The batch.

        Raises:
            ValueError: There is none.
        """
        if self.batch is None:
            raise ValueError("a request that nothing is committed for")
        return self.batch

    @property
    def may_miss(self) -> frozenset[TopicPartition]:
        """Partitions whose range may have offsets without a record in a dense pipeline.

        An operator has accepted that.
        """
        segments = self.batch.segments if self.batch else ()
        return frozenset(s.range.partition for s in segments if s.missing_accepted)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What was found in some ranges; the rows can be iterated again, as a transaction may need."""

    totals: dict[TopicPartition, SegmentTotals]
    """For every range asked for."""
    parts: Mapping[OffsetRange, SegmentTotals] = field(default_factory=dict)
    """For every part asked for."""
    contributions: Iterable[Contribution]
    """In any order, and again; one for each partition, minute and combination of label values."""
    dead_letters: Spool[DeadLetter] | list[DeadLetter]
    """Malformed records, in any order, and again."""
    line_set: LineSet | None = None
    """The counted lines, where the pipeline keeps them."""
