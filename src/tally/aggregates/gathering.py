"""The counts of a read, gathered from its groups and checked."""

from dataclasses import dataclass
from typing import Any

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.checks import SeriesLimit, check_totals
from tally.aggregates.counts import Contribution, CountRequest, Counts, DeadLetter
from tally.aggregates.spool import Spool
from tally.model import OffsetRange, SegmentTotals, TopicPartition


@dataclass(slots=True)
class _Sums:
    """Adds up the groups of one range; a value for each group would cost as much as all else."""

    records: int = 0
    matched: int = 0
    malformed: int = 0
    continuations: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, group: Any) -> None:
        """Add one group."""
        self.records += group.records
        self.malformed += group.malformed
        self.continuations += group.continuations
        if group.minute is not None:
            self.matched += group.records
        if self.first is None or group.first_offset < self.first:
            self.first = group.first_offset
        if self.last is None or group.last_offset > self.last:
            self.last = group.last_offset

    @property
    def totals(self) -> SegmentTotals:
        """The sums so far."""
        return SegmentTotals(
            records=self.records,
            matched=self.matched,
            unmatched=self.records - self.matched - self.malformed,
            malformed=self.malformed,
            continuations=self.continuations,
            first_offset=self.first,
            last_offset=self.last,
        )


class Gathering:
    """Takes the groups of a read and makes them its counts.

    Args:
        request: What was read.
        contributions: Filled with what is counted.
    """

    def __init__(self, request: CountRequest, contributions: Spool[Contribution]) -> None:
        self._request = request
        self._contributions = contributions
        self._aggregate = Aggregate.of(request.pipeline)
        self._sums = {r.partition: _Sums() for r in request.ranges}
        self._parts = {(p.partition, p.from_offset): p for p in request.parts}
        self._of_parts = {part: _Sums() for part in request.parts}
        self._malformed: dict[TopicPartition, OffsetRange] = {}
        self._series = SeriesLimit(request.pipeline, request.rows_before)

    def add(self, row: Any) -> None:
        """Add one group.

        Args:
            row: With ``topic``, ``partition``, ``minute``, the columns of the labels
                (:attr:`tally.aggregates.aggregate.Aggregate.label_columns`) and its sums
                (:attr:`tally.aggregates.aggregate.Aggregate.sums_of_groups`); in a recount also
                ``from_offset`` of its part.
        """
        partition = TopicPartition(topic=row.topic, partition=row.partition)
        self._sums[partition].add(row)
        if row.malformed:
            self._add_malformed(partition, row.first_malformed, row.last_malformed)
        part = None
        if self._parts:
            part = self._parts[partition, row.from_offset]
            self._of_parts[part].add(row)
        if row.minute is None:
            return
        self._series.add(row)
        self._contributions.append(
            Contribution(
                partition=partition,
                part=part,
                log_time=row.minute,
                sums=(row.records, *(row[measure.name] for measure in self._aggregate.measures)),
                labels=tuple(row[name] for name in self._aggregate.label_columns),
            )
        )

    def counts(self, dead_letters: Spool[DeadLetter]) -> Counts:
        """The counts, once all groups were added; what is read only to compare is not checked.

        Args:
            dead_letters: The malformed records, as far as they are kept by now.

        Raises:
            RecordsMissingError: Offsets of a dense range hold no record.
            DataLossError: What was read is not what was asked for.
            MalformedFloodError: More records are malformed than the pipeline allows.
            SeriesFloodError: The labels have more values than the pipeline allows.
        """
        request = self._request
        totals = {partition: sums.totals for partition, sums in self._sums.items()}
        if not request.is_recount:
            self._series.check()
            check_totals(request.pipeline, request.ranges, totals, may_miss=request.may_miss)
        return Counts(
            totals=totals,
            parts={part: sums.totals for part, sums in self._of_parts.items()},
            contributions=self._contributions,
            dead_letters=dead_letters,
        )

    @property
    def malformed(self) -> list[OffsetRange]:
        """For each partition whose malformed records are kept the smallest range of them."""
        most = self._request.letters_max
        return [
            malformed
            for partition, malformed in self._malformed.items()
            if most is None or self._sums[partition].malformed <= most
        ]

    def _add_malformed(self, partition: TopicPartition, first: int, last: int) -> None:
        if so_far := self._malformed.get(partition):
            first, last = min(first, so_far.from_offset), max(last, so_far.until_offset - 1)
        self._malformed[partition] = OffsetRange(
            partition=partition, from_offset=first, until_offset=last + 1
        )
