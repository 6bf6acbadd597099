"""The request for a read, its counts, and the check that it read what was planned."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.errors import (
    DataLossError,
    MalformedFloodError,
    RecordsMissingError,
    SeriesFloodError,
)
from tally.model import (
    EMPTY_TOTALS,
    Batch,
    Contribution,
    DeadLetter,
    OffsetRange,
    SegmentTotals,
    TopicPartition,
)

_MINUTE_S: Final = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class CountRequest:
    """What is to be read and counted."""

    pipeline: Pipeline
    """Line format, levels and reader options."""
    ranges: Sequence[OffsetRange]
    """At most one for each partition."""
    batch: Batch | None = None
    """The batch for which it is read, as it was claimed; None when nothing is to be committed."""
    check: bool = True
    """Whether to raise when what was read is not what was asked for, and to keep dead letters. A
    recount only compares counts and needs neither."""

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
    contributions: Spool[Contribution]
    """Per partition and minute."""
    dead_letters: Spool[DeadLetter]
    """Malformed records."""


def check_totals(
    pipeline: Pipeline,
    ranges: Sequence[OffsetRange],
    totals: dict[TopicPartition, SegmentTotals],
    *,
    may_miss: Collection[TopicPartition] = (),
) -> None:
    """Raise unless what was read is what was planned.

    Raises:
        RecordsMissingError: With every dense range that is short, and what was found.
        DataLossError: Records came from outside of a range, or too many.
        MalformedFloodError: More records are malformed than the pipeline allows.
    """
    wrong = [r for r in ranges if not _lies_inside(r, totals[r.partition])]
    if wrong:
        raise DataLossError(
            f"pipeline {pipeline.name}: what was read is not what was planned: "
            + "; ".join(_found(r, totals[r.partition]) for r in wrong),
            next_step=f"tally plan {pipeline.name} looks at what Kafka still holds",
        )
    short = [
        r
        for r in ranges
        if pipeline.offsets == "dense"
        and r.partition not in may_miss
        and totals[r.partition].records != r.offsets
    ]
    if short:
        raise RecordsMissingError(
            f"pipeline {pipeline.name}: offsets without a record: "
            + "; ".join(_found(r, totals[r.partition]) for r in short)
            + '; producers with transactions or a compacted topic need offsets = "sparse"',
            ranges=short,
            next_step=f"tally losses list {pipeline.name} --open",
        )
    malformed = sum(t.malformed for t in totals.values())
    if malformed > pipeline.max_malformed_per_batch:
        records = sum(t.records for t in totals.values())
        raise MalformedFloodError(
            f"pipeline {pipeline.name}: {malformed} of {records} records are malformed, more than "
            f"max_malformed_per_batch = {pipeline.max_malformed_per_batch}",
            next_step="correct line_format, or raise max_malformed_per_batch, and run it again",
        )


def _lies_inside(r: OffsetRange, found: SegmentTotals) -> bool:
    seen = [o for o in (found.first_offset, found.last_offset) if o is not None]
    return all(r.from_offset <= o < r.until_offset for o in seen) and found.records <= r.offsets


def _found(r: OffsetRange, found: SegmentTotals) -> str:
    seen = f"offsets {found.first_offset} to {found.last_offset}" if found.records else "none"
    return f"{r}: {found.records} records of {r.offsets}, {seen}"


class PartitionTally:
    """Adds up the minutes of one partition."""

    def __init__(self, asked: OffsetRange) -> None:
        self._asked = asked
        self._records = self._matched = self._malformed = 0
        self._offsets: list[int] = []
        self._malformed_offsets: list[int] = []

    def add(self, row: Any) -> None:
        """Add one group of the aggregation."""
        self._records += row.records
        self._malformed += row.malformed
        if row.minute is not None:
            self._matched += row.records
        self._offsets = _extremes(self._offsets, row.first_offset, row.last_offset)
        if row.malformed:
            self._malformed_offsets = _extremes(
                self._malformed_offsets, row.first_malformed, row.last_malformed
            )

    def totals(self) -> SegmentTotals:
        """The sums so far."""
        if not self._records:
            return EMPTY_TOTALS
        return SegmentTotals(
            records=self._records,
            matched=self._matched,
            unmatched=self._records - self._matched - self._malformed,
            malformed=self._malformed,
            first_offset=self._offsets[0],
            last_offset=self._offsets[1],
        )

    def malformed_range(self) -> OffsetRange | None:
        """The smallest range that holds all malformed records; None without any."""
        if not self._malformed_offsets:
            return None
        first, last = self._malformed_offsets
        return OffsetRange(
            partition=self._asked.partition, from_offset=first, until_offset=last + 1
        )


def _extremes(so_far: list[int], first: int, last: int) -> list[int]:
    return [min([*so_far, first]), max([*so_far, last])]


class SeriesLimit:
    """Stops a label with too many values before anything is written.

    The records of one minute, by Kafka's timestamps, may give ``max_series_per_batch`` rows. A
    batch whose records span more may have as many for each minute batch that would have read them,
    so a batch that catches up is not refused where minute batches would have passed.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._rows = 0
        self._seen_s: list[int] = []

    def add(self, row: Any) -> None:
        """Add one row of counted lines.

        Args:
            row: ``first_s`` and ``last_s`` are the Unix times of its first and last record.
        """
        if self._pipeline.labels:
            self._rows += 1
            self._seen_s = _extremes(self._seen_s, row.first_s, row.last_s)

    def check(self) -> None:
        """Raise when there are too many rows.

        Raises:
            SeriesFloodError: With the number of rows and the limit.
        """
        span_s = self._seen_s[1] - self._seen_s[0] if self._seen_s else 0
        batches = 1 if span_s <= _MINUTE_S else span_s // _MINUTE_S + 2
        limit = self._pipeline.max_series_per_batch * batches
        if self._rows > limit:
            raise SeriesFloodError(
                f"pipeline {self._pipeline.name}: the labels {', '.join(self._pipeline.labels)} "
                f"give {self._rows} rows, more than max_series_per_batch = "
                f"{self._pipeline.max_series_per_batch} allows for records of {span_s} s",
                next_step="take out the label with too many values, or raise "
                "max_series_per_batch; the same batch is then run again",
            )
