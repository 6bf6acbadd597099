"""The commit of a batch: results and offsets in one transaction."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tally.deliveries.takeover import take_over
from tally.errors import DataLossError, FencedError
from tally.ledger.batches import abandoned_error, find_batch, settle_replay
from tally.ledger.positions import check_result_table
from tally.model import (
    Batch,
    BatchKind,
    BatchState,
    Contribution,
    DeadLetter,
    SegmentTotals,
    TopicPartition,
)
from tally.mysql.transactions import Parameters, Transaction

# Rows of one INSERT: large enough that the round trip does not matter, small enough that neither
# the driver's memory nor max_allowed_packet does.
CONTRIBUTIONS_PER_INSERT = 2_000
DEAD_LETTERS_PER_INSERT = 100
DEAD_LETTER_BYTES_PER_INSERT = 1_048_576


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What a read found; the iterables can be walked again when the transaction is run again."""

    totals: Mapping[TopicPartition, SegmentTotals]
    """For each planned partition."""
    contributions: Iterable[Contribution]
    """In any order; each partition and minute once."""
    dead_letters: Iterable[DeadLetter]
    """In any order."""
    version: str
    """Version of the code that counted."""
    format_fingerprint: str
    """What it counted: the line format and the levels."""


def commit_batch(tx: Transaction, batch: Batch, result_table: str, result: Result) -> bool:
    """Make a batch's contributions part of the result, and move the offsets or replace old counts.

    Steps, all in the caller's transaction:

    1. lock the batch's row; it must be planned and of our attempt,
    2. ingest: move every partition's offset from its segment's start to its end, or none;
       replay: supersede every segment that it was planned to replace, or none,
    3. write the contributions, and add to the result what they differ by from those they replace,
    4. write the dead letters; those of replaced segments go,
    5. mark the segments live and the batch committed.

    Args:
        tx: An open transaction at READ COMMITTED.
        batch: The batch as :func:`tally.ledger.batches.claim` returned it.
        result_table: The pipeline's result table, a validated name.
        result: What was read, already checked against the plan.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        ConfigError: The pipeline counts into another table. Nothing is changed.
        FencedError: A newer attempt owns the batch, it was abandoned, a partition's offset is not
            where the batch began, or what it was to replace was replaced. Nothing is changed.
        DataLossError: What is about to be committed does not add up. Nothing is changed.
    """
    # 1
    if not _lock_for_commit(tx, batch):
        return False
    check_result_table(tx, batch.pipeline, result_table)
    # 2
    if batch.kind is BatchKind.INGEST:
        _move_offsets(tx, batch)
    else:
        take_over(tx, batch)
    # 3
    _insert_contributions(tx, batch, result.contributions)
    _add_to_result(tx, batch.batch_id, result_table)
    if batch.kind is BatchKind.REPLAY:
        _take_from_result(tx, batch.batch_id, result_table)
    # 4
    _insert_dead_letters(tx, batch, result.dead_letters)
    # 5
    _mark_live(tx, batch, result)
    if batch.replay_id is not None:
        settle_replay(tx, batch.replay_id)
    return True


def _lock_for_commit(tx: Transaction, batch: Batch) -> bool:
    now = find_batch(tx, batch.batch_id, lock=True)
    if now.state is BatchState.COMMITTED:
        return False
    if now.state is BatchState.ABANDONED:
        raise abandoned_error(tx, batch.batch_id)
    if now.attempt != batch.attempt:
        raise FencedError(
            f"batch {batch.batch_id}: attempt {now.attempt} has taken it over from attempt "
            f"{batch.attempt}",
            next_step=f"tally show {batch.batch_id}",
        )
    return True


def _move_offsets(tx: Transaction, batch: Batch) -> None:
    """Compare-and-set all partitions at once; affected rows are the ones that moved."""
    moved = tx.execute(
        "update partition_offset o join segment s using (incarnation_id, partition_id)"
        " set o.next_offset = s.until_offset"
        " where s.batch_id = %s and s.state = 'planned' and o.next_offset = s.from_offset",
        (batch.batch_id,),
    )
    if moved != len(batch.segments):
        rows = tx.rows(
            "select i.topic, o.partition_id, o.next_offset from segment s"
            " join partition_offset o using (incarnation_id, partition_id)"
            " join topic_incarnation i using (incarnation_id) where s.batch_id = %s",
            (batch.batch_id,),
        )
        stand = ", ".join(f"{r['topic']}/{r['partition_id']} at {r['next_offset']}" for r in rows)
        planned = ", ".join(str(segment.range) for segment in batch.segments)
        raise FencedError(
            f"batch {batch.batch_id}: {moved} of {len(batch.segments)} partitions could move; "
            f"planned {planned}; the ledger now has {stand}",
            next_step="tally audit",
        )


def _insert_contributions(
    tx: Transaction, batch: Batch, contributions: Iterable[Contribution]
) -> None:
    keys = _segment_ids(batch)
    rows = ((keys[c.partition], c.log_time, c.log_count) for c in contributions)
    for chunk in _chunks(rows, CONTRIBUTIONS_PER_INSERT):
        tx.insert_many(
            "insert into segment_count (segment_id, log_time, log_count) values (%s, %s, %s)", chunk
        )


# What a batch changes in the result, minute by minute: what it counted, less what it replaces.
# Added up by the server from what was just written, so that the result cannot differ from its
# contributions.
_CHANGES: Final = """
    select log_time, sum(n) as log_count from (
        select c.log_time, c.log_count as n
        from segment_count c join segment s using (segment_id) where s.batch_id = %s
        union all
        select c.log_time, -c.log_count
        from segment_count c join replacement r on r.replaced_id = c.segment_id
        join segment s on s.segment_id = r.segment_id where s.batch_id = %s
    ) as `_both` group by log_time
"""


def _add_to_result(tx: Transaction, batch_id: int, table: str) -> None:
    # In order of minutes, so that two batches wait for each other and do not deadlock.
    tx.execute(
        f"insert into `{table}` (log_time, log_count)"
        " select `_added`.log_time, `_added`.log_count from ("
        f"   {_CHANGES} having log_count > 0"
        # No result table can have this alias' name: it begins with an underscore.
        " ) as `_added` order by `_added`.log_time"
        f" on duplicate key update log_count = `{table}`.log_count + `_added`.log_count",
        (batch_id, batch_id),
    )


def _take_from_result(tx: Transaction, batch_id: int, table: str) -> None:
    """Minutes that a replay counts fewer lines for; those that are left with none disappear."""
    fewer = f"({_CHANGES} having log_count < 0) as `_fewer`"
    wanted = tx.row(f"select count(*) as minutes from {fewer}", (batch_id, batch_id))
    taken = tx.execute(
        f"update `{table}` join {fewer} using (log_time)"
        f" set `{table}`.log_count = `{table}`.log_count + `_fewer`.log_count"
        f" where `{table}`.log_count + `_fewer`.log_count >= 0",
        (batch_id, batch_id),
    )
    if wanted is None or taken != wanted["minutes"]:
        raise DataLossError(
            f"batch {batch_id}: {table} has less in {wanted['minutes'] - taken if wanted else 0} "
            "minutes than the segments that are to be replaced have counted",
            next_step="tally audit",
        )
    tx.execute(
        f"delete `{table}` from `{table}` join {fewer} using (log_time)"
        f" where `{table}`.log_count = 0",
        (batch_id, batch_id),
    )


def _insert_dead_letters(tx: Transaction, batch: Batch, dead_letters: Iterable[DeadLetter]) -> None:
    keys = _segment_ids(batch)
    chunk: list[Parameters] = []
    chunk_bytes = 0
    for letter in dead_letters:
        if chunk and (
            len(chunk) == DEAD_LETTERS_PER_INSERT
            or chunk_bytes + len(letter.value or b"") > DEAD_LETTER_BYTES_PER_INSERT
        ):
            _insert_dead_letter_rows(tx, chunk)
            chunk, chunk_bytes = [], 0
        key = keys[letter.partition]
        chunk.append((key, letter.offset, letter.reason, letter.value, letter.value_bytes))
        chunk_bytes += len(letter.value or b"")
    _insert_dead_letter_rows(tx, chunk)
    tx.execute(
        "delete d from dead_letter d join replacement r on r.replaced_id = d.segment_id"
        " join segment s on s.segment_id = r.segment_id where s.batch_id = %s",
        (batch.batch_id,),
    )


def _insert_dead_letter_rows(tx: Transaction, rows: list[Parameters]) -> None:
    tx.insert_many(
        "insert into dead_letter (segment_id, record_offset, reason, value, value_bytes)"
        " values (%s, %s, %s, %s, %s)",
        rows,
    )


def _mark_live(tx: Transaction, batch: Batch, result: Result) -> None:
    for segment in batch.segments:
        totals = result.totals[segment.range.partition]
        tx.execute(
            "update segment set state = 'live', records = %s, matched = %s, unmatched = %s,"
            " malformed = %s, first_offset = %s, last_offset = %s"
            " where segment_id = %s and state = 'planned'",
            (
                totals.records,
                totals.matched,
                totals.unmatched,
                totals.malformed,
                totals.first_offset,
                totals.last_offset,
                segment.segment_id,
            ),
        )
    _check_written(tx, batch.batch_id)
    tx.execute(
        "update batch set state = 'committed', committed_at = %s, committed_version = %s,"
        " format_fingerprint = %s where batch_id = %s and attempt = %s and state = 'planned'",
        (
            tx.now(),
            result.version,
            result.format_fingerprint,
            batch.batch_id,
            batch.attempt,
        ),
    )


def _check_written(tx: Transaction, batch_id: int) -> None:
    """What was written must be what was counted, or nothing is committed."""
    wrong = tx.rows(
        "select s.segment_id, s.state, s.matched, s.malformed,"
        " coalesce((select sum(c.log_count) from segment_count c"
        "   where c.segment_id = s.segment_id), 0) as written_matched,"
        " (select count(*) from dead_letter d where d.segment_id = s.segment_id)"
        "   as written_malformed"
        " from segment s where s.batch_id = %s"
        " having s.state <> 'live' or s.matched <> written_matched"
        "   or s.malformed <> written_malformed",
        (batch_id,),
    )
    if wrong:
        raise DataLossError(
            f"batch {batch_id}: what was written is not what was counted: {wrong}",
            next_step=f"tally run {batch_id}",
        )


def _segment_ids(batch: Batch) -> dict[TopicPartition, int]:
    return {segment.range.partition: segment.segment_id for segment in batch.segments}


def _chunks(rows: Iterator[Parameters], size: int) -> Iterator[list[Parameters]]:
    while chunk := list(islice(rows, size)):
        yield chunk
