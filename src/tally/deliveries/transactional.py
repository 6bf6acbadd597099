"""The commit of a batch: results and offsets in one transaction."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tally.aggregates.aggregate import Aggregate
from tally.config.pipeline import Pipeline
from tally.deliveries.takeover import take_over
from tally.errors import DataLossError, FencedError
from tally.ledger.batches import abandoned_error, find_batch, settle_replay
from tally.ledger.contributions import (
    add_to_result,
    insert_contributions,
    lines_of_segment,
    take_from_result,
)
from tally.ledger.tables import Tables, check_tables, tables_of
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

# Rows of one INSERT, as for contributions: bounded in bytes, too.
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


def commit_batch(tx: Transaction, batch: Batch, pipeline: Pipeline, result: Result) -> bool:
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
        pipeline: What it counts, and into which table.
        result: What was read, already checked against the plan.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        ConfigError: The pipeline counts into another table. Nothing is changed.
        SchemaError: A label has no column yet. Nothing is changed.
        FencedError: A newer attempt owns the batch, it was abandoned, a partition's offset is not
            where the batch began, or what it was to replace was replaced. Nothing is changed.
        DataLossError: What is about to be committed does not add up. Nothing is changed.
    """
    # 1
    if not _lock_for_commit(tx, batch):
        return False
    tables = tables_of(tx, batch.pipeline)
    check_tables(tables, pipeline)
    # 2
    if batch.kind is BatchKind.INGEST:
        _move_offsets(tx, batch)
    else:
        take_over(tx, batch)
    # 3
    rows = _rows(batch, tables, Aggregate.of(pipeline), result.contributions)
    insert_contributions(tx, tables, rows)
    add_to_result(tx, tables, batch.batch_id)
    if batch.kind is BatchKind.REPLAY:
        take_from_result(tx, tables, batch.batch_id)
    # 4
    _insert_dead_letters(tx, batch, result.dead_letters)
    # 5
    _mark_live(tx, batch, result)
    _check_written(tx, tables, batch.batch_id)
    _mark_committed(tx, batch, result)
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


def _rows(
    batch: Batch, tables: Tables, aggregate: Aggregate, contributions: Iterable[Contribution]
) -> Iterator[Parameters]:
    keys = _segment_ids(batch)
    columns = [label.column for label in tables.labels]
    for c in contributions:
        sums = (c.log_count, c.log_bytes) if tables.has_bytes else (c.log_count,)
        labels = aggregate.values_for(columns, c.labels)
        yield (keys[c.partition], c.log_time, *labels, *sums)


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


def _mark_committed(tx: Transaction, batch: Batch, result: Result) -> None:
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


def _check_written(tx: Transaction, tables: Tables, batch_id: int) -> None:
    """What was written must be what was counted, or nothing is committed."""
    wrong = tx.rows(
        "select s.segment_id, s.state, s.matched, s.malformed,"
        f" {lines_of_segment(tables, 's.segment_id')} as written_matched,"
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
