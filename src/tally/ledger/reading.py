"""Reading the ledger's batches, for commands, pages and the audit. Changes nothing."""

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tally.ledger.batches import unknown_batch
from tally.model import (
    BatchKind,
    BatchState,
)
from tally.mysql.transactions import Row, Transaction

_BATCHES = """
    select b.batch_id, b.pipeline, b.kind, b.replay_id, b.state, b.attempt, b.planned_at,
           b.planned_version, b.requested_by, b.run_id, b.scheduled_at, b.claimed_at, b.claimed_by,
           b.read_at, b.committed_at, b.committed_version, b.format_fingerprint, b.abandoned_at,
           b.abandoned_by, b.reason, b.pruned_at,
           count(s.segment_id) as segments, sum(s.state = 'superseded') as superseded,
           sum(s.until_offset - s.from_offset) as offsets,
           sum(s.records) as records, sum(s.matched) as matched,
           sum(s.unmatched) as unmatched, sum(s.malformed) as malformed,
           sum(s.continuations) as continuations
    from batch b left join segment s using (batch_id)
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
    pruned_at: datetime | None
    """When one of its ranges was first pruned, which its sums and ranges lack since; else None."""
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
        f"{_BATCHES} where b.run_id = %s and cast(b.run_id as binary) = %s and b.pipeline = %s"
        " and (b.requested_by = %s or left(b.requested_by, char_length(%s)) = %s)"
        f" group by b.batch_id order by b.batch_id desc limit {limit:d}",
        # The index merges cases; Airflow's ids do not.
        (run_id, run_id, pipeline, asked_by, with_user, with_user),
    )
    return [_batch(row) for row in rows]


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
    rows = tx.rows(
        f"{_BATCHES} where b.replay_id = %s and b.pipeline = %s"
        f" group by b.batch_id order by b.batch_id desc limit {limit:d}",
        (replay_id, pipeline),
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
        " and b.batch_id > a.batch_id and b.run_id = a.run_id"
        " and cast(b.run_id as binary) = cast(a.run_id as binary) and b.kind = 'ingest'"
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


def _batch(row: Row) -> BatchRecord:
    sums = ("records", "matched", "unmatched", "malformed", "continuations")
    times = [key for key in row if key.endswith("_at")]
    return BatchRecord(
        **{
            **row,
            **{key: None if row[key] is None else int(row[key]) for key in sums},
            **{key: row[key] and row[key].replace(tzinfo=UTC) for key in times},
            "kind": BatchKind(row["kind"]),
            "state": BatchState(row["state"]),
            "offsets": int(row["offsets"] or 0),
            "superseded": int(row["superseded"] or 0),
        }
    )
