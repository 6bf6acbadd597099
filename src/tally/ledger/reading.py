"""Reading the ledger for commands and the audit: batches, segments, minutes. Changes nothing."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tally.aggregates.aggregate import TIME
from tally.ledger.batches import unknown_batch
from tally.ledger.rows import range_of
from tally.ledger.tables import Tables, listed, summed
from tally.model import (
    BatchKind,
    BatchState,
    OffsetRange,
    SegmentState,
    SegmentTotals,
)
from tally.mysql.transactions import Row, Transaction

_BATCHES = """
    select b.batch_id, b.pipeline, b.kind, b.replay_id, b.state, b.attempt, b.planned_at,
           b.planned_version, b.requested_by, b.run_id, b.scheduled_at, b.claimed_at, b.claimed_by,
           b.read_at, b.committed_at, b.committed_version, b.format_fingerprint, b.abandoned_at,
           b.abandoned_by, b.reason,
           count(s.segment_id) as segments, sum(s.state = 'superseded') as superseded,
           sum(s.until_offset - s.from_offset) as offsets,
           sum(s.records) as records, sum(s.matched) as matched,
           sum(s.unmatched) as unmatched, sum(s.malformed) as malformed
    from batch b left join segment s using (batch_id)
"""

_SEGMENTS = """
    select s.segment_id, s.batch_id, s.partition_id, s.from_offset, s.until_offset, s.state,
           s.superseded_by, s.records, s.matched, s.unmatched, s.malformed, s.first_offset,
           s.last_offset, i.topic, i.topic_id, i.cluster_id, i.state = 'current' as is_current,
           b.format_fingerprint, b.committed_version
    from segment s join topic_incarnation i using (incarnation_id) join batch b using (batch_id)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRecord:
    """Everything that the ledger says of a batch; all times are UTC."""

    batch_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline it belongs to."""
    kind: BatchKind
    """Whether it moves the committed offsets."""
    replay_id: int | None
    """The replay that it is part of; None for an ingest batch."""
    state: BatchState
    """Its state."""
    attempt: int
    """How often it was claimed."""
    planned_at: datetime
    """When its ranges were fixed."""
    planned_version: str
    """Version of the code that planned it."""
    requested_by: str
    """Who asked for it."""
    run_id: str | None
    """Airflow's run id, when Airflow asked; otherwise of a replay an id of the call."""
    scheduled_at: datetime | None
    """When the schedule asked for it; None when somebody else did."""
    claimed_at: datetime | None
    """When the newest attempt began."""
    claimed_by: str | None
    """The process of the newest attempt."""
    read_at: datetime | None
    """When its ranges had been read and counted; None until it is committed."""
    committed_at: datetime | None
    """When it became part of the result."""
    committed_version: str | None
    """Version of the code that counted it."""
    format_fingerprint: str | None
    """Of the rules by which it was counted (:func:`tally.aggregates.fingerprint.fingerprint`)."""
    abandoned_at: datetime | None
    """When it was abandoned."""
    abandoned_by: str | None
    """Who abandoned it."""
    reason: str | None
    """Why it was abandoned."""
    segments: int
    """How many ranges it has."""
    superseded: int
    """How many of them a replay has superseded; their counts are no longer in the result."""
    offsets: int
    """How many offsets they span."""
    records: int | None
    """Records read; None until it is committed, as are the next three."""
    matched: int | None
    """Lines at a counted level."""
    unmatched: int | None
    """Lines that were understood and are not counted."""
    malformed: int | None
    """Records that could not be understood."""

    @property
    def standing(self) -> str:
        """The state, and whether its counts were replaced since: ``committed, partly replaced``."""
        if not self.superseded:
            return str(self.state)
        how = "replaced" if self.superseded == self.segments else "partly replaced"
        return f"{self.state}, {how}"

    @property
    def steps(self) -> dict[str, float]:
        """Where its time went: the seconds until it was planned, claimed, read and committed.

        Each from the one before, the first from the schedule; what is not known is left out. Times
        are those of the machines that did it.
        """
        moments = {
            "scheduled": self.scheduled_at,
            "planned": self.planned_at,
            "claimed": self.claimed_at,
            "read": self.read_at,
            "committed": self.committed_at,
        }
        known = [(name, at) for name, at in moments.items() if at is not None]
        return {
            name: round((at - before).total_seconds(), 3)
            for (_, before), (name, at) in itertools.pairwise(known)
        }


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


def list_batches(
    tx: Transaction,
    pipeline: str,
    *,
    state: BatchState | None = None,
    kind: BatchKind | None = None,
    after: int | None = None,
    before: int | None = None,
    limit: int,
) -> list[BatchRecord]:
    """The pipeline's batches, newest first.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        state: Only those in this state.
        kind: Only those of this kind.
        after: Only those with a larger id.
        before: Only those with a smaller id.
        limit: The largest number of batches.
    """
    bounds = {"batch_id > %s": after, "batch_id < %s": before}
    asked = {sql: value for sql, value in bounds.items() if value is not None}
    where = " and ".join(["pipeline = %s", *asked])
    values: list[Any] = [pipeline, *asked.values()]
    if state is not None or kind is not None:
        # For each kind and state its latest ones, as the index has them; never all of them.
        pairs = itertools.product([kind] if kind else BatchKind, [state] if state else BatchState)
        chosen = [(f"{where} and kind = %s and state = %s", [*values, *pair]) for pair in pairs]
    else:
        chosen = [(where, values)]
    latest = " union all ".join(
        f"(select batch_id from batch where {one} order by batch_id desc limit {limit:d})"
        for one, _ in chosen
    )
    rows = tx.rows(
        f"{_BATCHES} join ({latest}) as latest on latest.batch_id = b.batch_id"
        f" group by b.batch_id order by b.batch_id desc limit {limit:d}",
        [value for _, of in chosen for value in of],
    )
    return [_batch(row) for row in rows]


def batches_of_run(
    tx: Transaction, pipeline: str, dag_id: str, run_id: str, *, limit: int
) -> list[BatchRecord]:
    """The batches that were planned for a run of Airflow, newest first.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        dag_id: The run's DAG: runs of several DAGs may have the same id.
        run_id: The run.
        limit: The largest number of batches.
    """
    asked_by = f"airflow:{dag_id}"
    with_user = f"{asked_by}:"
    rows = tx.rows(
        f"{_BATCHES} where b.run_id = %s and b.pipeline = %s"
        " and (b.requested_by = %s or left(b.requested_by, char_length(%s)) = %s)"
        f" group by b.batch_id order by b.batch_id desc limit {limit:d}",
        (run_id, pipeline, asked_by, with_user, with_user),
    )
    return [_batch(row) for row in rows]


def batch_record(tx: Transaction, batch_id: int) -> BatchRecord:
    """One batch.

    Raises:
        UnknownBatchError: The ledger has none of that id.
    """
    rows = tx.rows(f"{_BATCHES} where b.batch_id = %s group by b.batch_id", (batch_id,))
    if not rows:
        raise unknown_batch(batch_id)
    return _batch(rows[0])


def caught_up_behind(tx: Transaction, batch_id: int) -> list[int]:
    """The committed ingest batches after a batch that were planned for the same run of Airflow."""
    rows = tx.rows(
        "select b.batch_id from batch a join batch b on b.pipeline = a.pipeline"
        " and b.batch_id > a.batch_id and b.run_id = a.run_id and b.kind = 'ingest'"
        " and b.state = 'committed' where a.batch_id = %s and a.kind = 'ingest'"
        " order by b.batch_id",
        (batch_id,),
    )
    return [row["batch_id"] for row in rows]


def last_committed(tx: Transaction, pipeline: str) -> BatchRecord | None:
    """The ingest batch that was committed last; None before the first one."""
    row = tx.row(
        "select batch_id from batch where pipeline = %s and state = 'committed'"
        " and kind = 'ingest'"
        " order by committed_at desc, batch_id desc limit 1",
        (pipeline,),
    )
    return None if row is None else batch_record(tx, row["batch_id"])


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
) -> dict[tuple[str, ...], tuple[int, ...]]:
    """What the segments contribute, added up: by minute and labels, lines and bytes."""
    rows = tx.stream(
        f"select {listed(tables.keys)}, {summed(tables.sums)} from `{tables.contributions}`"
        f" where segment_id in %s group by {listed(tables.keys)}",
        (list(segment_ids),),
    )
    return {
        (str(row[TIME]), *(row[key] for key in tables.keys[1:])): tuple(
            int(row[s]) for s in tables.sums
        )
        for row in rows
    }


def still_live(tx: Transaction, segment_ids: Sequence[int]) -> set[int]:
    """Ids of the given segments that are live now."""
    rows = tx.rows(
        "select segment_id from segment where state = 'live' and segment_id in %s",
        (list(segment_ids),),
    )
    return {row["segment_id"] for row in rows}


def _batch(row: Row) -> BatchRecord:
    numbers = ("segments", "offsets", "records", "matched", "unmatched", "malformed")
    times = ("scheduled_at", "planned_at", "claimed_at", "read_at", "committed_at", "abandoned_at")
    return BatchRecord(
        **{
            **row,
            **{key: None if row[key] is None else int(row[key]) for key in numbers},
            **{key: row[key] and row[key].replace(tzinfo=UTC) for key in times},
            "kind": BatchKind(row["kind"]),
            "state": BatchState(row["state"]),
            "offsets": int(row["offsets"] or 0),
            "superseded": int(row["superseded"] or 0),
        }
    )


def _segment(row: Row) -> SegmentRecord:
    counted = ("records", "matched", "unmatched", "malformed", "first_offset", "last_offset")
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
        else SegmentTotals(**{key: row[key] for key in counted}),
        format_fingerprint=row["format_fingerprint"],
        committed_version=row["committed_version"],
    )
