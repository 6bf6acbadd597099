"""The request for a read, and its counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.model import (
    Batch,
    Contribution,
    DeadLetter,
    OffsetRange,
    RowSet,
    SegmentTotals,
    TopicPartition,
)


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
    def may_miss(self) -> frozenset[TopicPartition]:
        """Partitions whose range may have offsets without a record in a dense pipeline.

        An operator has accepted that.
        """
        segments = self.batch.segments if self.batch else ()
        return frozenset(s.range.partition for s in segments if s.missing_accepted)


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """What was found in some ranges."""

    totals: dict[TopicPartition, SegmentTotals]
    """For every range asked for."""
    parts: Mapping[OffsetRange, SegmentTotals] = field(default_factory=dict)
    """For every part asked for."""
    contributions: Spool[Contribution]
    """One for each partition, minute and combination of label values."""
    dead_letters: Spool[DeadLetter]
    """Malformed records."""
    row_set: RowSet | None = None
    """The counted lines, where the pipeline keeps them."""
