"""The counts of a read, gathered from its groups and checked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.checks import SeriesLimit, check_totals
from tally.aggregates.counts import Contribution, CountRequest, Counts, DeadLetter
from tally.aggregates.spool import Spool
from tally.model import OffsetRange, SegmentTotals, TopicPartition

_TOTALLED: Final = (
    *("records", "malformed", "continuations"),
    *("first_offset", "last_offset", "kept_bytes"),
)
_RECORD_BYTES: Final = 128
"""That a malformed record takes besides its value."""


@dataclass(slots=True)
class _Sums:
    """Adds up the groups of one range; a value for each group would cost as much as all else."""

    records: int = 0
    matched: int = 0
    malformed: int = 0
    continuations: int = 0
    kept_bytes: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, totalled: tuple[int, ...], *, is_counted: bool) -> None:
        """Add one group: what it has of :data:`_TOTALLED`."""
        records, malformed, continuations, first, last, kept_bytes = totalled
        self.records += records
        self.malformed += malformed
        self.continuations += continuations
        self.kept_bytes += kept_bytes
        if is_counted:
            self.matched += records
        if self.first is None or first < self.first:
            self.first = first
        if self.last is None or last > self.last:
            self.last = last

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
        self._places = {(p.topic, p.partition): (p, sums) for p, sums in self._sums.items()}
        self._parts = {(p.partition, p.from_offset): p for p in request.parts}
        self._of_parts = {part: _Sums() for part in request.parts}
        self._malformed: dict[TopicPartition, OffsetRange] = {}
        self._series = SeriesLimit(request.pipeline, request.rows_before)

    def add(self, names: Sequence[str], groups: Iterable[Sequence[Any]]) -> None:
        """Add groups, of which there may be millions.

        Args:
            names: Of the values of each group: ``topic``, ``partition``, ``minute``, the columns of
                the labels (:attr:`tally.aggregates.aggregate.Aggregate.label_columns`) and its sums
                (:attr:`tally.aggregates.aggregate.Aggregate.sums_of_groups`); in a recount also
                ``from_offset`` of its part.
            groups: The values.
        """

        def values_of(*wanted: str) -> Any:
            """Takes some values of a group, a tuple even of one or none."""
            at = [names.index(name) for name in wanted]
            return itemgetter(*at) if len(at) > 1 else lambda group: tuple(group[n] for n in at)

        place_of, totalled_of = values_of("topic", "partition"), values_of(*_TOTALLED)
        minute_at, malformed_at = names.index("minute"), names.index("malformed")
        malformed_of = values_of("first_malformed", "last_malformed")
        sums_of = values_of("records", *(measure.name for measure in self._aggregate.measures))
        labels_of = values_of(*self._aggregate.label_columns)
        times_of = values_of("first_s", "last_s") if self._aggregate.labels else None
        part_at = names.index("from_offset") if self._parts else None
        for group in groups:
            partition, sums = self._places[place_of(group)]
            totalled, minute = totalled_of(group), group[minute_at]
            sums.add(totalled, is_counted=minute is not None)
            if group[malformed_at]:
                self._add_malformed(partition, *malformed_of(group))
            part = None
            if part_at is not None:
                part = self._parts[partition, group[part_at]]
                self._of_parts[part].add(totalled, is_counted=minute is not None)
            if minute is None:
                continue
            if times_of is not None:
                self._series.add(*times_of(group))
            counted = Contribution(partition, minute, sums_of(group), labels_of(group), part)
            self._contributions.append(counted)

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

    @property
    def malformed_bytes(self) -> int:
        """Bytes that the malformed records of :attr:`Gathering.malformed` take, about."""
        sums = [self._sums[r.partition] for r in self.malformed]
        return sum(s.kept_bytes + _RECORD_BYTES * s.malformed for s in sums)

    def _add_malformed(self, partition: TopicPartition, first: int, last: int) -> None:
        if so_far := self._malformed.get(partition):
            first, last = min(first, so_far.from_offset), max(last, so_far.until_offset - 1)
        self._malformed[partition] = OffsetRange(
            partition=partition, from_offset=first, until_offset=last + 1
        )
