"""The checks of what was read, before anything is written."""

import math
from collections.abc import Collection, Sequence
from typing import Final

from tally import errors
from tally.config.pipeline import Pipeline
from tally.model import EMPTY_TOTALS, OffsetRange, SegmentTotals, TopicPartition

_MINUTE_S: Final = 60


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
        raise errors.DataLossError(
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
        error = errors.RecordsMissingError(
            f"pipeline {pipeline.name}: offsets without a record: "
            + "; ".join(_found(r, totals[r.partition]) for r in short)
            + '; producers with transactions or a compacted topic need offsets = "sparse"',
            next_step=f"tally losses list {pipeline.name} --open",
        )
        error.ranges = tuple(short)
        raise error
    total = sum(totals.values(), EMPTY_TOTALS)
    if total.malformed > pipeline.max_malformed_per_batch:
        raise errors.MalformedFloodError(
            f"pipeline {pipeline.name}: {total.malformed} of {total.records} records are "
            f"malformed, more than max_malformed_per_batch = {pipeline.max_malformed_per_batch}",
            next_step=f"{find_format(pipeline)}, or raise max_malformed_per_batch, and run it "
            "again",
        )


def find_format(pipeline: Pipeline) -> str:
    """What to do about many malformed records, as a clause that others may follow."""
    of, text = pipeline.format, f"see which format fits with tally format try {pipeline.topics[0]}"
    lacks_level = pipeline.levels and of.has_level and not (of.is_fixed or of.options.default_level)
    more = ", or name a default_level in it if lines may leave theirs out" if lacks_level else ""
    return f"{text}; correct line_format{more}"


def _lies_inside(r: OffsetRange, found: SegmentTotals) -> bool:
    seen = [o for o in (found.first_offset, found.last_offset) if o is not None]
    return all(r.from_offset <= o < r.until_offset for o in seen) and found.records <= r.offsets


def _found(r: OffsetRange, found: SegmentTotals) -> str:
    seen = f"offsets {found.first_offset} to {found.last_offset}" if found.records else "none"
    return f"{r}: {found.records} records of {r.offsets}, {seen}"


class SeriesLimit:
    """Stops a label with too many values before anything is written.

    The records of one minute, by Kafka's timestamps, may give ``max_series_per_batch`` rows. A
    batch whose records span more may have as many for each minute batch that would have read them,
    so a batch that catches up is not refused where minute batches would have passed: each row
    belongs to the batch of its first record, and minute batches that begin anywhere in the minute
    are at most two for each minute of the clock. A record with a wrong timestamp is one minute
    more, however far away. A replay may always give as many rows as it replaces.

    Args:
        pipeline: With the limit.
        rows_before: Rows that are to be replaced.
    """

    def __init__(self, pipeline: Pipeline, rows_before: int = 0) -> None:
        self._pipeline = pipeline
        self._rows_before = rows_before
        self._rows = 0
        self._first_s, self._last_s = math.inf, -math.inf
        self._first_minutes: set[int] = set()

    def add(self, first_s: int, last_s: int) -> None:
        """Add one row of counted lines, by the Unix times of its first and last record."""
        self._rows += 1
        self._first_s = min(self._first_s, first_s)
        self._last_s = max(self._last_s, last_s)
        self._first_minutes.add(first_s // _MINUTE_S)

    def check(self) -> None:
        """Raise when there are too many rows.

        Raises:
            SeriesFloodError: With the number of rows and the limit.
        """
        span_s = int(self._last_s - self._first_s) if self._rows else 0
        longest = 1 if span_s <= _MINUTE_S else span_s // _MINUTE_S + 2
        batches = min(longest, 2 * len(self._first_minutes))
        limit = max(self._pipeline.max_series_per_batch * batches, self._rows_before)
        if self._rows > limit:
            raise errors.SeriesFloodError(
                f"pipeline {self._pipeline.name}: the labels {', '.join(self._pipeline.labels)} "
                f"give {self._rows} rows, more than max_series_per_batch = "
                f"{self._pipeline.max_series_per_batch} allows for records of {span_s} s",
                next_step="take out the label with too many values, or raise "
                "max_series_per_batch; the same batch is then run again",
            )
