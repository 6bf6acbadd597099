"""The sums of one partition, or of a part of it, from the groups of a read."""

from typing import Any

from tally.model import EMPTY_TOTALS, OffsetRange, SegmentTotals


class PartitionTally:
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
