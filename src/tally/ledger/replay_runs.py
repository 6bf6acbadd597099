"""Replays that run as tasks: the replay of a run, and the batches that replaced another one."""

from dataclasses import dataclass

from tally.ledger.batches import Requester, abandoned_error, find_batch
from tally.ledger.tables import tables_of_replay
from tally.model import Batch, BatchState, OffsetRange
from tally.mysql.transactions import Row, Transaction
from tally.planning.replay import join_ranges


def find_replay_of_run(
    tx: Transaction, pipeline: str, requester: Requester, digest: str
) -> tuple[int, list[int]] | None:
    """The replay that a run has already recorded for a request; None without one.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        requester: The run, and the user who triggered it.
        digest: Of the request (:func:`tally.planning.replay_request.request_digest`).

    Returns:
        Its id and its batches as they were first planned, in order, whatever their state.
    """
    row = tx.row(
        "select replay_id from replay where pipeline = %s and cast(run_id as binary) = %s"
        " and cast(requested_by as binary) = %s and request_digest = %s"
        " order by replay_id limit 1",
        (pipeline, requester.run_id, requester.name, digest),
    )
    if row is None:
        return None
    # Replanned batches have no run id.
    rows = tx.rows(
        "select batch_id from batch where replay_id = %s and cast(run_id as binary) = %s"
        " order by batch_id",
        (row["replay_id"], requester.run_id),
    )
    return row["replay_id"], [item["batch_id"] for item in rows]


def standing_for(tx: Transaction, batch_id: int) -> list[int]:
    """The batches that count a batch's ranges: itself, or those that were replanned in its place.

    Raises:
        UnknownBatchError: The ledger has none of that id.
        FencedError: It was abandoned, and no other batches count all of its ranges.
    """
    batch = find_batch(tx, batch_id)
    if batch.state is not BatchState.ABANDONED:
        return [batch_id]
    later = [find_batch(tx, number) for number in _later_in_replay(tx, batch)]
    if not _cover(later, batch):
        raise abandoned_error(tx, batch_id)
    return [number.batch_id for number in later]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayTotals:
    """What the committed batches of a replay have read and found."""

    records: int
    """Records read."""
    matched: int
    """Lines counted."""
    malformed: int
    """Records that could not be understood."""
    continuations: int | None
    """Unmatched records that begin no line; None where they were not all counted by themselves."""
    minutes: int
    """Minutes that they have counted lines for."""


def totals_of(tx: Transaction, replay_id: int) -> ReplayTotals:
    """Totals of the committed batches so far, including ranges that were replaced since."""
    here = "from batch b join segment s using (batch_id)"
    which = "where b.replay_id = %s and b.state = 'committed'"
    found = tx.row(
        "select coalesce(sum(s.records), 0) as records, coalesce(sum(s.matched), 0) as matched,"
        " coalesce(sum(s.malformed), 0) as malformed,"
        " if(count(s.continuations) = count(*), coalesce(sum(s.continuations), 0), null)"
        f"   as continuations {here} {which}",
        (replay_id,),
    )
    minutes = tx.row(
        f"select count(distinct c.log_time) as minutes {here}"
        f" join `{tables_of_replay(tx, replay_id).contributions}` c using (segment_id) {which}",
        (replay_id,),
    )
    numbers = {**(found or {}), **(minutes or {})}
    whole: Row = {key: None if n is None else int(n) for key, n in numbers.items()}
    return ReplayTotals(**whole)


def _later_in_replay(tx: Transaction, batch: Batch) -> list[int]:
    """Later batches of the same replay that overlap a batch, abandoned ones left out."""
    rows = tx.rows(
        "select distinct b.batch_id from segment o join segment s"
        " on s.incarnation_id = o.incarnation_id and s.partition_id = o.partition_id"
        " and s.from_offset < o.until_offset and o.from_offset < s.until_offset"
        " join batch b on b.batch_id = s.batch_id"
        " where o.batch_id = %s and b.replay_id = %s and b.batch_id > %s"
        " and b.state <> 'abandoned' order by b.batch_id",
        (batch.batch_id, batch.replay_id, batch.batch_id),
    )
    return [row["batch_id"] for row in rows]


def _cover(others: list[Batch], batch: Batch) -> bool:
    wide = join_ranges([s.range for other in others for s in other.segments], touching=True)
    return all(any(_holds(w, s.range) for w in wide) for s in batch.segments)


def _holds(outer: OffsetRange, inner: OffsetRange) -> bool:
    return (
        outer.partition == inner.partition
        and outer.from_offset <= inner.from_offset
        and inner.until_offset <= outer.until_offset
    )
