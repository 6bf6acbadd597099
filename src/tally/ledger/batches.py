"""Batches and their segments: reading, planning, claiming, abandoning."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.errors import FencedError, UnknownBatchError, UsageError
from tally.ledger.rows import columns, record
from tally.ledger.schema import check_version
from tally.model import Batch, BatchKind, BatchState, OffsetRange, PlannedSegment
from tally.mysql.transactions import Row, Transaction

_BATCH: Final = f"""select {columns(Batch, "b", is_of_partition="b.lane <> ''")} from batch b """

ACCEPTED_HOLE: Final = """exists (select 1 from lost_range l
                   where l.incarnation_id = s.incarnation_id and l.partition_id = s.partition_id
                     and l.cause = 'missing' and l.state = 'accepted'
                     and l.from_offset <= s.from_offset and s.until_offset <= l.until_offset
                  )"""
"""Whether the segment ``s`` may lack records, as an operator has accepted; SQL."""

_REPLACED: Final = """(select sum({}) from replacement r
    join segment o on o.segment_id = r.replaced_id where r.segment_id = s.segment_id)"""

_PLANNED: Final = columns(
    PlannedSegment,
    "s",
    missing_accepted=ACCEPTED_HOLE,
    records_replaced=_REPLACED.format("o.records"),
    offsets_replaced=_REPLACED.format("o.until_offset - o.from_offset"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requester:
    """Who asked for a batch, and with what code."""

    name: str
    """The user or the DAG."""
    version: str
    """Tally's version."""
    run_id: str | None = None
    """Airflow's run id, or another id that a repeated request has in common; None without one."""
    scheduled_at: datetime | None = None
    """When the schedule requested it, with its zone; None when it was requested otherwise."""


def find_batch(tx: Transaction, batch_id: int, *, lock: bool = False) -> Batch:
    """The batch with its segments.

    Args:
        tx: An open transaction.
        batch_id: The ledger's key.
        lock: Whether to lock the batch's row until the transaction ends; the answer is then the
            last committed state.

    Raises:
        UnknownBatchError: The ledger has none of that id.
    """
    return find_batches(tx, [batch_id], lock=lock)[0]


def committed_of(tx: Transaction, pipeline: str, batch_ids: Sequence[int]) -> list[int]:
    """Which of some batches a pipeline has committed, in order."""
    return tx.scalars(
        "select batch_id from batch where batch_id in %s and pipeline = %s"
        " and state = 'committed' order by batch_id",
        (list(batch_ids), pipeline),
    )


def find_batches(tx: Transaction, batch_ids: Sequence[int], *, lock: bool = False) -> list[Batch]:
    """Batches with their segments, in the order of their ids.

    Args:
        tx: An open transaction.
        batch_ids: The ledger's keys; at least one.
        lock: As in :func:`find_batch`.

    Raises:
        UnknownBatchError: The ledger has none of one of the ids.
    """
    among = "where b.batch_id in %s order by b.batch_id"
    rows = tx.rows(_BATCH + among + (" for update" if lock else ""), (batch_ids,))
    if missing := sorted(set(batch_ids) - {row["batch_id"] for row in rows}):
        raise unknown_batch(missing[0])
    return _batches(tx, rows)


def unknown_batch(batch_id: int) -> UnknownBatchError:
    """The error of a batch that the ledger does not have."""
    return UnknownBatchError(
        f"the ledger has no batch {batch_id}", next_step="tally batches lists them"
    )


def find_open_ingest(tx: Transaction, pipeline: str, *, lock: bool = False) -> list[Batch]:
    """The pipeline's planned ingest batches: at most one, or one of each partition.

    With ``lock`` their rows are locked until the transaction ends: the call waits for a running
    commit of a batch, and later reads see its result.
    """
    # Lanes begin with a slash, and 0 is the next character.
    among = (
        "where open_ingest = %s or open_ingest > concat(%s, '/') and open_ingest < concat(%s, '0')"
        " order by b.batch_id"
    )
    rows = tx.rows(_BATCH + among, (pipeline,) * 3)
    if not lock or not rows:
        return _batches(tx, rows)
    # In the order in which they are claimed; the index has another one.
    locked = find_batches(tx, [row["batch_id"] for row in rows], lock=True)
    return [batch for batch in locked if batch.state is BatchState.PLANNED]


def insert_batch(
    tx: Transaction,
    pipeline: str,
    ranges: Sequence[OffsetRange],
    generation_ids: Mapping[str, int],
    requester: Requester,
    *,
    is_of_partition: bool = False,
    **of_kind: int,
) -> int:
    """Record a planned batch; from now on its ranges never change.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        ranges: What is read.
        generation_ids: The ledger's key of each topic's generation.
        requester: Who asks.
        is_of_partition: Whether its only range is committed by itself, beside batches of other
            partitions.
        of_kind: Of a replay its ``replay_id``; of a batch that moves the committed offsets its
            ``waiting_offsets``: how many wait in its partitions, its own included.

    Returns:
        The batch's id.
    """
    rows = [
        (
            generation_ids[r.partition.topic],
            r.partition.partition,
            r.from_offset,
            r.until_offset,
        )
        for r in ranges
    ]
    batch_id = tx.insert_row(
        "batch",
        pipeline=pipeline,
        lane="/{}/{}".format(*rows[0]) if is_of_partition else "",
        kind=BatchKind.REPLAY if "replay_id" in of_kind else BatchKind.INGEST,
        planned_at=tx.now(),
        planned_version=requester.version,
        requested_by=requester.name,
        run_id=requester.run_id,
        scheduled_at=requester.scheduled_at,
        **of_kind,
    )
    tx.insert_many(
        "insert into segment (batch_id, incarnation_id, partition_id, from_offset, until_offset)"
        " values %s",
        [(batch_id, *row) for row in rows],
    )
    return batch_id


def claim(tx: Transaction, batch_ids: Sequence[int], claimed_by: str) -> list[Batch]:
    """Raise the attempts of the planned ones of some batches: earlier claims can no longer commit.

    Returns:
        All of them in the order of their ids: with the new attempt, or as they have ended.

    Raises:
        UnknownBatchError: The ledger has none of one of the ids.
        SchemaError: Newer code has migrated the ledger.
    """
    found = find_batches(tx, batch_ids, lock=True)
    planned = [batch.batch_id for batch in found if batch.state is BatchState.PLANNED]
    if not planned:
        return found
    check_version(tx)
    tx.execute(
        "update batch set attempt = attempt + 1, claimed_at = %s, claimed_by = %s,"
        " claim_token = %s where batch_id in %s",
        (tx.now(), claimed_by, secrets.token_hex(16), planned),
    )
    return find_batches(tx, batch_ids)


def release(tx: Transaction, batch: Batch) -> None:
    """Record that the attempt has failed: no attempt runs until the batch is claimed again."""
    tx.execute(
        "update batch set claimed_at = null where batch_id = %s and attempt = %s"
        " and claim_token <=> %s and state = 'planned'",
        (batch.batch_id, *batch.claim),
    )


def abandon(tx: Transaction, batch_id: int, *, by: str, reason: str) -> Batch:
    """Abandon a planned batch: it counts nothing. The next plan reads its offsets again.

    Returns:
        The batch before it was abandoned.

    Raises:
        UnknownBatchError: The ledger has none of that id.
        FencedError: It was abandoned already.
        UsageError: It is committed.
    """
    batch = find_batch(tx, batch_id, lock=True)
    if batch.state is BatchState.ABANDONED:
        raise abandoned_error(tx, batch_id)
    if batch.state is BatchState.COMMITTED:
        raise UsageError(
            f"batch {batch_id} is committed; what is counted cannot be abandoned",
            next_step=f"tally replay {batch.pipeline} --batch {batch_id} --dry-run, to count its "
            "ranges again by today's rules",
        )
    tx.execute(
        "update batch set state = 'abandoned', abandoned_at = %s, abandoned_by = %s, reason = %s"
        " where batch_id = %s",
        (tx.now(), by, reason, batch_id),
    )
    tx.execute("update segment set state = 'abandoned' where batch_id = %s", (batch_id,))
    if batch.replay_id is not None:
        settle_replay(tx, batch.replay_id)
    return batch


def restored_error(batch_id: int) -> FencedError:
    """The error of an attempt whose batch is another one in the ledger by now."""
    return FencedError(
        f"batch {batch_id} is another one than was read for: the ledger was restored to an older "
        "state since, or another server has taken over",
        next_step=f"tally show {batch_id}",
    )


def abandoned_error(tx: Transaction, batch_id: int) -> FencedError:
    """The error of an attempt whose batch was abandoned."""
    row = tx.row("select abandoned_by, reason, kind from batch where batch_id = %s", (batch_id,))
    by, reason, kind = row.values() if row else (None, None, None)
    return FencedError(
        f"batch {batch_id} was abandoned by {by}: {reason}",
        next_step="what it was to replace stays; request it again with tally replay"
        if kind == BatchKind.REPLAY
        else "tally plan reads its offsets again",
    )


_REPROCESSED: Final = """
    select 1 from batch d join segment c using (batch_id)
    where d.replay_id = %s and d.state = 'committed'
    and c.incarnation_id = s.incarnation_id and c.partition_id = s.partition_id
"""


def settle_replay(tx: Transaction, replay_id: int) -> None:
    """End the replay when none of its batches is planned any more.

    It is done if committed batches cover all of its ranges. It is cancelled if one of its abandoned
    ranges begins or ends outside of every committed batch.

    Its row is locked first: of two last batches that commit at once, the second sees the first.
    """
    tx.row("select state from replay where replay_id = %s for update", (replay_id,))
    tx.execute(
        "update replay set ended_at = %s, state = if("
        "   exists (select 1 from batch b join segment s using (batch_id)"
        "     where b.replay_id = %s and b.state = 'abandoned' and not ("
        f"       exists ({_REPROCESSED}"
        "         and c.from_offset <= s.from_offset and s.from_offset < c.until_offset)"
        f"       and exists ({_REPROCESSED}"
        "         and c.from_offset < s.until_offset and s.until_offset <= c.until_offset))),"
        "   'cancelled', 'done')"
        " where replay_id = %s and state = 'open'"
        " and not exists (select 1 from batch where replay_id = %s and state = 'planned')",
        (tx.now(), *(replay_id,) * 5),
    )


def _batches(tx: Transaction, rows: Sequence[Row]) -> list[Batch]:
    if not rows:
        return []
    segments: dict[int, list[PlannedSegment]] = {row["batch_id"]: [] for row in rows}
    for row in tx.rows(
        f"select s.batch_id, {_PLANNED} from segment s join topic_incarnation i"
        " using (incarnation_id) where s.batch_id in %s"
        " order by s.batch_id, i.topic, s.partition_id, s.from_offset",
        (list(segments),),
    ):
        segments[row["batch_id"]].append(record(PlannedSegment, row))
    return [record(Batch, row, segments=tuple(segments[row["batch_id"]])) for row in rows]
