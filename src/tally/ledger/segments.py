"""Reading the ledger's segments: their ranges, their state and what they hold. Changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from tally.aggregates.aggregate import TIME
from tally.ledger.rows import range_of
from tally.ledger.tables import Tables, listed
from tally.model import OffsetRange, SegmentState, SegmentTotals
from tally.mysql.transactions import Row, Transaction

_SEGMENTS = """
    select s.segment_id, s.batch_id, s.partition_id, s.from_offset, s.until_offset, s.state,
           s.superseded_by, s.records, s.matched, s.unmatched, s.malformed, s.first_offset,
           s.last_offset, s.continuations, i.topic, i.topic_id, i.cluster_id,
           i.state = 'current' as is_current, b.format_fingerprint, b.committed_version
    from segment s join topic_incarnation i using (incarnation_id) join batch b using (batch_id)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentRecord:
    """Everything that the ledger says of a segment."""

    segment_id: int
    """The ledger's key."""
    batch_id: int
    """The batch it belongs to."""
    range: OffsetRange
    """What is read."""
    state: SegmentState
    """Its state."""
    superseded_by: int | None
    """The segment that superseded it."""
    topic_id: str
    """Kafka's id of the topic when it was planned."""
    cluster_id: str
    """The cluster that the topic was on."""
    is_current: bool
    """Whether this is the topic's current generation."""
    totals: SegmentTotals | None
    """What was found in it; None until it was counted."""
    format_fingerprint: str | None
    """Of the rules by which it was counted (:func:`tally.aggregates.fingerprint.fingerprint`)."""
    committed_version: str | None
    """Version of the code that counted it."""


def segments_of(tx: Transaction, batch_id: int) -> list[SegmentRecord]:
    """The batch's segments, in order of topic, partition and offset."""
    rows = tx.rows(
        f"{_SEGMENTS} where s.batch_id = %s order by i.topic, s.partition_id, s.from_offset",
        (batch_id,),
    )
    return [_segment(row) for row in rows]


def live_segments(tx: Transaction, pipeline: str) -> list[SegmentRecord]:
    """The pipeline's live segments, in order of generation, topic, partition and offset."""
    rows = tx.rows(
        f"{_SEGMENTS} where i.pipeline = %s and s.state = 'live'"
        " order by i.incarnation_id, i.topic, s.partition_id, s.from_offset",
        (pipeline,),
    )
    return [_segment(row) for row in rows]


def folded_ranges(tx: Transaction, pipeline: str) -> list[OffsetRange]:
    """The ranges of folded segments, in order of topic, partition and offset."""
    rows = tx.rows(
        "select i.topic, s.partition_id, s.from_offset, s.until_offset"
        " from segment s join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s and s.state = 'folded'"
        " order by i.topic, s.partition_id, s.from_offset",
        (pipeline,),
    )
    return [range_of(row) for row in rows]


def contributions_of(
    tx: Transaction, tables: Tables, segment_ids: Sequence[int]
) -> dict[int, dict[tuple[str, ...], tuple[int, ...]]]:
    """What each segment contributes: by minute and labels, lines and bytes."""
    rows = tx.stream(
        f"select segment_id, {listed((*tables.keys, *tables.sums))} from `{tables.contributions}`"
        " where segment_id in %s",
        (list(segment_ids),),
    )
    found: dict[int, dict[tuple[str, ...], tuple[int, ...]]] = {i: {} for i in segment_ids}
    for row in rows:
        key = (str(row[TIME]), *(row[key] for key in tables.keys[1:]))
        found[row["segment_id"]][key] = tuple(int(row[s]) for s in tables.sums)
    return found


def still_live(tx: Transaction, segment_ids: Sequence[int]) -> set[int]:
    """Ids of the given segments that are live now."""
    rows = tx.rows(
        "select segment_id from segment where state = 'live' and segment_id in %s",
        (list(segment_ids),),
    )
    return {row["segment_id"] for row in rows}


def _segment(row: Row) -> SegmentRecord:
    sums = ("records", "matched", "unmatched", "malformed", "continuations")
    return SegmentRecord(
        segment_id=row["segment_id"],
        batch_id=row["batch_id"],
        range=range_of(row),
        state=SegmentState(row["state"]),
        superseded_by=row["superseded_by"],
        topic_id=row["topic_id"],
        cluster_id=row["cluster_id"],
        is_current=bool(row["is_current"]),
        totals=None
        if row["records"] is None
        else SegmentTotals(**{key: row[key] for key in (*sums, "first_offset", "last_offset")}),
        format_fingerprint=row["format_fingerprint"],
        committed_version=row["committed_version"],
    )
