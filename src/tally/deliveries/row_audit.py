"""Whether the rows that readers see are the lines that were counted, by segment and minute."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Final

from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.deliveries.set_store import KeptSet, SetStore
from tally.ledger.line_sets import CountedMinute, counted_minutes
from tally.ledger.records import SegmentRecord, segments_in
from tally.ledger.tables import tables_to_read
from tally.model import SegmentState

_SHOWN_MAX: Final = 20
_READ_FILES_S: Final = 3_600
_BEGIN: Final = attrgetter("range.from_offset")


def different_segments(ctx: Context, pipeline: Pipeline, store: SetStore) -> dict[int, str]:
    """Every segment whose rows are not what it has counted, with what is different."""
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        # The server waits with the ledger's minutes while those of many files are read.
        tx.keep_streams_open(_READ_FILES_S)
        folds = Folds(segments_in(tx, pipeline.name, SegmentState.FOLDED))
        counted = counted_minutes(tx, tables_to_read(tx, pipeline), pipeline.name)
        found = dict(differences(counted, store.live_sets(), folds))
    return found | dict(folds.differences())


class Folds:
    """Adds up the rows of segments that were folded.

    Args:
        segments: The folded segments.
    """

    def __init__(self, segments: Iterable[SegmentRecord]) -> None:
        self._of_partition: dict[tuple[str, str, int], list[SegmentRecord]] = {}
        for one in sorted(segments, key=_BEGIN):
            place = (one.cluster_id, one.topic_id, one.range.partition.partition)
            self._of_partition.setdefault(place, []).append(one)
        self._rows: Counter[int] = Counter()

    def add(self, kept: KeptSet) -> bool:
        """Whether the rows of a segment lie in a folded range; they are added to its own."""
        at = kept.place
        ranges = self._of_partition.get((at.cluster_id, at.topic_id, at.partition_id), [])
        before = bisect_right(ranges, at.from_offset, key=_BEGIN) - 1
        if before < 0 or at.from_offset >= ranges[before].range.until_offset:
            return False
        self._rows[ranges[before].segment_id] += kept.rows
        return True

    def differences(self) -> Iterator[tuple[int, str]]:
        """The folded segments that have not as many rows as lines, and what is different."""
        for ranges in self._of_partition.values():
            for one in ranges:
                if (rows := self._rows[one.segment_id]) != one.matched:
                    yield one.segment_id, _unequal(one.matched, rows)


def differences(
    counted: Iterable[CountedMinute], kept: Iterable[KeptSet], folds: Folds
) -> Iterator[tuple[int, str]]:
    """The segments whose rows are not what they have counted.

    Args:
        counted: By the ledger, in order of set.
        kept: On the server of the rows, in order of set.
        folds: Takes the rows of segments that were folded.

    Yields:
        The segment, and what is different.
    """
    both: Iterable[CountedMinute | KeptSet] = merge(counted, kept, key=_set_id)
    for _, of_set in groupby(both, _set_id):
        of_segment: dict[int, list[CountedMinute]] = {}
        there: KeptSet | None = None
        for one in of_set:
            if isinstance(one, KeptSet):
                there = one
            else:
                of_segment.setdefault(one.segment_id, []).append(one)
        # No two segments may have the same one.
        for segment_id, minutes in of_segment.items():
            if what := _difference(minutes, there):
                yield segment_id, what
        if there is not None and not of_segment and not folds.add(there):
            what = f"{there.rows} rows of a segment that is not part of the result"
            yield there.place.segment_id, what


def _set_id(one: CountedMinute | KeptSet) -> int:
    return one.place.set_id if isinstance(one, KeptSet) else one.line_set or 0


def _difference(counted: Sequence[CountedMinute], kept: KeptSet | None) -> str:
    """What is different in one segment; '' when nothing is."""
    first = counted[0]
    if kept is None:
        return f"readers do not see its set {first.line_set}"
    if kept.trouble or kept.place.segment_id != first.segment_id:
        of_another = f"its set {first.line_set} is that of segment {kept.place.segment_id}"
        return kept.trouble or of_another
    if kept.rows != first.matched:
        return _unequal(first.matched, kept.rows)
    lines = {c.log_time: c.lines for c in counted if c.log_time is not None}
    if lines != kept.minutes:
        minutes = sorted(lines.keys() | kept.minutes.keys())
        told = [
            f"{m}: {lines.get(m, 0)} lines, {kept.minutes.get(m, 0)} rows"
            for m in minutes
            if lines.get(m) != kept.minutes.get(m)
        ]
        return "; ".join(told[:_SHOWN_MAX])
    return ""


def _unequal(lines: int, rows: int) -> str:
    return f"{lines} lines were counted, {rows} rows are there"
