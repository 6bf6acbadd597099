"""The counts of a read, gathered from its groups and checked."""

from typing import Any

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.checks import SeriesLimit, check_totals
from tally.aggregates.counts import Contribution, CountRequest, Counts, DeadLetter
from tally.aggregates.spool import Spool
from tally.model import EMPTY_TOTALS, OffsetRange, SegmentTotals, TopicPartition


class _Tally:
    """Adds up the minutes of one range."""

    def __init__(self, asked: OffsetRange) -> None:
        self.asked = asked
        """Where they lie."""
        self._records = self._matched = self._malformed = self._continuations = 0
        self._offsets: list[int] = []
        self._malformed_offsets: list[int] = []

    def add(self, row: Any) -> None:
        """Add one group of the aggregation."""
        self._records += row.records
        self._malformed += row.malformed
        self._continuations += row.continuations
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
            continuations=self._continuations,
            first_offset=self._offsets[0],
            last_offset=self._offsets[1],
        )

    def malformed_range(self) -> OffsetRange | None:
        """The smallest range that holds all malformed records; None without any."""
        if not self._malformed_offsets:
            return None
        first, last = self._malformed_offsets
        return OffsetRange(partition=self.asked.partition, from_offset=first, until_offset=last + 1)


def _extremes(so_far: list[int], first: int, last: int) -> list[int]:
    return [min([*so_far, first]), max([*so_far, last])]


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
        self._tallies = {r.partition: _Tally(r) for r in request.ranges}
        self._parts = {(p.partition, p.from_offset): _Tally(p) for p in request.parts}
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
        self._tallies[partition].add(row)
        part = None
        if self._parts:
            of_part = self._parts[partition, row.from_offset]
            of_part.add(row)
            part = of_part.asked
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
        totals = {partition: tally.totals() for partition, tally in self._tallies.items()}
        if not request.is_recount:
            self._series.check()
            check_totals(request.pipeline, request.ranges, totals, may_miss=request.may_miss)
        return Counts(
            totals=totals,
            parts={tally.asked: tally.totals() for tally in self._parts.values()},
            contributions=self._contributions,
            dead_letters=dead_letters,
        )

    @property
    def malformed(self) -> list[OffsetRange]:
        """For each partition whose malformed records are kept the smallest range of them."""
        most = self._request.letters_max
        return [
            malformed
            for tally in self._tallies.values()
            if (malformed := tally.malformed_range()) is not None
            and (most is None or tally.totals().malformed <= most)
        ]
