"""Batches and segments as the ledger has recorded them, for commands, pages and the audit.

Changes nothing.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally import model
from tally.ledger.batches import unknown_batch
from tally.ledger.rows import SEGMENTS, record, records
from tally.mysql.transactions import Parameters, Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRecord(model.BatchPlan):
    """Everything that the ledger has of a batch; all times are UTC."""

    planned_version: str
    """Version of the code that planned it."""
    requested_by: str
    """Who asked for it."""
    scheduled_at: datetime | None
    """When the schedule requested it; None when it was requested otherwise."""
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
    """Of the rules by which it was counted (:func:`tally.aggregates.aggregate.fingerprint`)."""
    abandoned_at: datetime | None
    """When it was abandoned."""
    abandoned_by: str | None
    """Who abandoned it."""
    reason: str | None
    """Why it was abandoned."""
    pruned_at: datetime | None
    """When one of its ranges was first pruned, which its sums and ranges lack since; else None."""
    waiting_offsets: int | None
    """How many offsets waited when it was planned, its own included; None for a replay, and for one
    that an older release has planned."""
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
    continuations: int | None
    """Unmatched records that begin no line; None also where they were not counted by themselves."""

    @property
    def standing(self) -> str:
        """The state, and what became of it since: ``committed, partly replaced, partly pruned``."""
        words = [str(self.state)]
        if self.superseded:
            words.append("replaced" if self.superseded == self.segments else "partly replaced")
        if self.pruned_at is not None:
            words.append("partly pruned")
        return ", ".join(words)

    @property
    def moments(self) -> dict[str, datetime]:
        """When it was scheduled, planned, claimed, read and committed; unknown ones are left out.

        Times are those of the machines that did it.
        """
        moments = {
            "scheduled": self.scheduled_at,
            "planned": self.planned_at,
            "claimed": self.claimed_at,
            "read": self.read_at,
            "committed": self.committed_at,
        }
        return {name: at for name, at in moments.items() if at is not None}

    @property
    def steps(self) -> dict[str, float]:
        """Where its time went: the seconds until each of its moments, from the one before."""
        return {
            name: round((at - before).total_seconds(), 3)
            for (_, before), (name, at) in itertools.pairwise(self.moments.items())
        }


_SUMS: Final = ("records", "matched", "unmatched", "malformed", "continuations")


def _batches(tx: Transaction, which: str, values: Parameters, limit: int) -> list[BatchRecord]:
    return records(
        tx,
        BatchRecord,
        f"from batch b left join segment s using (batch_id) {which}"
        f" group by b.batch_id order by b.batch_id desc limit {limit:d}",
        values,
        "b",
        segments="count(s.segment_id)",
        superseded="sum(s.state = 'superseded')",
        offsets="sum(s.until_offset - s.from_offset)",
        **{name: f"sum(s.{name})" for name in _SUMS},
    )


def list_batches(
    tx: Transaction,
    pipeline: str,
    *,
    state: model.BatchState | None = None,
    kind: model.BatchKind | None = None,
    before: int | None = None,
    limit: int,
) -> list[BatchRecord]:
    """The pipeline's batches, newest first.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        state: Only those in this state.
        kind: Only those of this kind.
        before: Only those with a smaller id.
        limit: The largest number of batches.
    """
    # For each kind and state its latest ones, as the index has them; never all of them.
    kinds = [kind] if kind else model.BatchKind
    states = [state] if state else model.BatchState
    pairs = list(itertools.product(kinds, states))
    of_pair = (
        "(select batch_id from batch where pipeline = %s and batch_id < %s and kind = %s"
        f" and state = %s order by batch_id desc limit {limit:d})"
    )
    latest = " union all ".join([of_pair] * len(pairs))
    before = before or 2**63 - 1
    return _batches(
        tx,
        f"join ({latest}) as latest on latest.batch_id = b.batch_id",
        [value for pair in pairs for value in (pipeline, before, *pair)],
        limit,
    )


def open_batches(tx: Transaction, pipeline: str) -> list[BatchRecord]:
    """The pipeline's planned ingest batches, oldest first: one, or one of each partition."""
    which = "where b.pipeline = %s and b.kind = 'ingest' and b.state = 'planned'"
    return _batches(tx, which, (pipeline,), 2**63 - 1)[::-1]


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
    return _batches(
        tx,
        "where b.run_id = %s and cast(b.run_id as binary) = %s and b.pipeline = %s"
        " and (b.requested_by = %s or left(b.requested_by, char_length(%s)) = %s)",
        # The index merges cases; Airflow's ids do not.
        (run_id, run_id, pipeline, asked_by, with_user, with_user),
        limit,
    )


def batches_of_replay(
    tx: Transaction, pipeline: str, replay_id: int, *, limit: int
) -> list[BatchRecord]:
    """The batches of a replay, newest first, those included that were replanned.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        replay_id: The ledger's key.
        limit: The largest number of batches.
    """
    which = "where b.replay_id = %s and b.pipeline = %s"
    return _batches(tx, which, (replay_id, pipeline), limit)


def batch_record(tx: Transaction, batch_id: int) -> BatchRecord:
    """One batch.

    Raises:
        UnknownBatchError: The ledger has none of that id.
    """
    for found in _batches(tx, "where b.batch_id = %s", (batch_id,), 1):
        return found
    raise unknown_batch(batch_id)


def caught_up_behind(tx: Transaction, batch_ids: Sequence[int]) -> list[int]:
    """The committed ingest batches after one of some that were planned for its run of Airflow."""
    return tx.scalars(
        "select distinct b.batch_id from batch a join batch b on b.pipeline = a.pipeline"
        " and b.batch_id > a.batch_id and b.run_id = a.run_id"
        " and cast(b.run_id as binary) = cast(a.run_id as binary) and b.kind = 'ingest'"
        " and b.state = 'committed' where a.batch_id in %s and a.kind = 'ingest'"
        " order by b.batch_id",
        (list(batch_ids),),
    )


def last_committed(tx: Transaction, pipeline: str) -> BatchRecord | None:
    """The ingest batch that was committed last; None before the first one."""
    batch_id = tx.scalar(
        "select batch_id from batch where pipeline = %s and state = 'committed'"
        " and kind = 'ingest' order by committed_at desc, batch_id desc limit 1",
        (pipeline,),
    )
    return None if batch_id is None else batch_record(tx, batch_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentRecord(model.Segment):
    """Everything that the ledger has of a segment."""

    batch_id: int
    """The batch it belongs to."""
    superseded_by: int | None
    """The segment that superseded it."""
    superseded_by_batch: int | None
    """The batch of that segment."""
    is_current: bool
    """Whether this is the topic's current generation."""
    totals: model.SegmentTotals | None
    """What was found in it; None until it was counted."""
    format_fingerprint: str | None
    """Of the rules by which it was counted (:func:`tally.aggregates.aggregate.fingerprint`)."""
    committed_version: str | None
    """Version of the code that counted it."""

    @property
    def matched(self) -> int:
        """Lines that were counted in it."""
        return self.totals.matched if self.totals else 0


def _segments(tx: Transaction, which: str, values: Parameters) -> list[SegmentRecord]:
    return records(
        tx,
        SegmentRecord,
        f"from {SEGMENTS} where {which}"
        " order by i.topic, i.incarnation_id, s.partition_id, s.from_offset",
        values,
        "s",
        superseded_by_batch="(select n.batch_id from segment n"
        " where n.segment_id = s.superseded_by)",
        format_fingerprint="b.format_fingerprint",
        committed_version="b.committed_version",
    )


def segments_of(tx: Transaction, batch_id: int) -> list[SegmentRecord]:
    """The batch's segments, in order of topic, partition and offset."""
    return _segments(tx, "s.batch_id = %s", (batch_id,))


def segments_in(tx: Transaction, pipeline: str, state: model.SegmentState) -> list[SegmentRecord]:
    """The pipeline's segments in a state, in order of topic, generation, partition and offset."""
    return _segments(tx, "i.pipeline = %s and s.state = %s", (pipeline, state))


def still_live(tx: Transaction, segment_ids: Sequence[int]) -> set[int]:
    """Ids of the given segments that are live now."""
    return set(
        tx.scalars(
            "select segment_id from segment where state = 'live' and segment_id in %s",
            (list(segment_ids),),
        )
    )


def ranges_of_batch(tx: Transaction, pipeline: str, batch_id: int) -> list[model.OffsetRange]:
    """The ranges that a batch counted, of current topic generations."""
    return records(
        tx,
        model.OffsetRange,
        "from segment s join topic_incarnation i using (incarnation_id)"
        " where s.batch_id = %s and i.pipeline = %s and i.state = 'current'"
        " and s.state in ('live', 'superseded', 'folded')",
        (batch_id, pipeline),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Replaced:
    """A segment that another one replaces."""

    segment_id: int
    """The segment that is replaced."""
    batch_id: int
    """The batch that counted it."""


def replaced_by(tx: Transaction, batch_id: int) -> dict[int, list[Replaced]]:
    """What each segment of a batch was planned to replace, by segment, in order."""
    rows = tx.rows(
        "select r.segment_id as replacing_id, o.segment_id, o.batch_id"
        " from segment s join replacement r using (segment_id)"
        " join segment o on o.segment_id = r.replaced_id"
        " where s.batch_id = %s order by r.segment_id, r.replaced_id",
        (batch_id,),
    )
    found: dict[int, list[Replaced]] = {}
    for row in rows:
        found.setdefault(row["replacing_id"], []).append(record(Replaced, row))
    return found
