"""Which set of lines is that of a segment, in pipelines that keep the lines they count.

The ledger alone decides it, in the transaction that commits the segment.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tally.aggregates.aggregate import LINES, TIME
from tally.aggregates.counts import LineSet
from tally.config.pipeline import Pipeline
from tally.errors import ConfigError, DataLossError, SchemaError
from tally.ledger.rows import columns, record
from tally.ledger.tables import Tables
from tally.model import Batch, SegmentState, SegmentTotals, TopicPartition
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What the ledger has of a segment and of the batch that it belongs to."""

    state: SegmentState
    """The segment's state."""
    line_set: int | None
    """The set that it was committed with."""
    attempt: int
    """The newest attempt of its batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedMinute:
    """What a live segment has counted in one minute, whatever the labels."""

    segment_id: int
    """The segment."""
    line_set: int | None
    """Its set."""
    matched: int
    """Lines that it has counted in all."""
    log_time: str | None
    """The minute, ``YYYY-MM-DD HH:MM:00``; None where it has counted none."""
    lines: int
    """Lines of the minute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unshown:
    """Segments that are committed, and whose lines readers do not see yet."""

    segments: int = 0
    """How many."""
    since: datetime | None = None
    """When the oldest was committed, with its zone; None when there is none."""


def check_lines(tx: Transaction, tables: Tables, pipeline: Pipeline) -> None:
    """Raise unless a pipeline that has batches keeps its lines where it has kept them so far.

    Raises:
        ConfigError: ``delivery`` or ``rows_table`` has changed.
    """
    begun = "select 1 from batch where pipeline = %s limit 1"
    if tables.rows_view != pipeline.rows_view and tx.exists(begun, (pipeline.name,)):
        kept, would_keep = (
            "no lines" if view is None else f"its lines in {view}"
            for view in (tables.rows_view, pipeline.rows_view)
        )
        raise ConfigError(
            f"pipeline {pipeline.name} has kept {kept} so far; with delivery = "
            f'"{pipeline.delivery}" it would keep {would_keep}',
            next_step="set delivery (and rows_table) back, or give the pipeline another name and "
            "another result_table",
        )


def record_rows_view(tx: Transaction, tables: Tables, pipeline: Pipeline) -> None:
    """Record where a pipeline keeps its lines, before its first batch.

    The caller holds the pipeline's lock.

    Raises:
        ConfigError: It has batches already, and keeps its lines elsewhere or not at all.
    """
    if tables.rows_view == pipeline.rows_view:
        return
    check_lines(tx, tables, pipeline)
    tx.execute(
        "update pipeline set rows_table = %s where pipeline = %s",
        (pipeline.rows_view, pipeline.name),
    )


def record_line_set(
    tx: Transaction,
    batch: Batch,
    totals: Mapping[TopicPartition, SegmentTotals],
    kept: LineSet | None,
) -> LineSet:
    """Make a set that of the batch's only segment; returns it.

    Raises:
        DataLossError: There is none, or it has not the lines that were counted.
    """
    (segment,), (counted,) = batch.segments, totals.values()
    if kept is None or kept.lines != counted.matched:
        numbers = f"{counted.matched} lines were counted and {kept.lines} kept" if kept else ""
        raise DataLossError(
            f"batch {batch.batch_id}: {numbers or 'its lines were counted, and not kept'}",
            next_step=f"tally run {batch.batch_id}",
        )
    tx.execute(
        "update segment set row_set = %s where segment_id = %s", (kept.set_id, segment.segment_id)
    )
    tx.execute("insert into row_outbox (segment_id) values (%s)", (segment.segment_id,))
    return kept


def standings(tx: Transaction, segment_ids: Sequence[int]) -> dict[int, Standing]:
    """What the ledger has of segments, by key; those that it does not know are left out."""
    if not segment_ids:
        return {}
    found = tx.rows(
        f"select s.segment_id, {columns(Standing, 's', attempt='b.attempt')}"
        " from segment s join batch b using (batch_id) where s.segment_id in %s",
        (segment_ids,),
    )
    return {row["segment_id"]: record(Standing, row) for row in found}


def outbox(tx: Transaction, pipeline: str) -> dict[int, int]:
    """The sets of committed segments that readers may not see yet, by segment."""
    return tx.pairs(
        "select o.segment_id, s.row_set from row_outbox o join segment s using (segment_id)"
        " join batch b using (batch_id) where b.pipeline = %s order by o.segment_id",
        (pipeline,),
    )


def unshown(tx: Transaction, pipeline: str) -> Unshown:
    """What is committed of a pipeline and not shown."""
    row = tx.one(
        "select count(*) as segments, min(b.committed_at) as since from row_outbox o"
        " join segment s using (segment_id) join batch b using (batch_id) where b.pipeline = %s",
        (pipeline,),
    )
    return record(Unshown, row)


def ledger_id(tx: Transaction) -> str:
    """The id of this ledger.

    Raises:
        SchemaError: It has none: it is not migrated.
    """
    for found in tx.scalars("select ledger_id from ledger_identity"):
        return str(found)
    raise SchemaError("the ledger has no id", next_step="tally migrate")


def has_lines(tx: Transaction, pipeline: str) -> bool:
    """Whether segments of a pipeline were committed with their lines."""
    # A folded segment has no set of its own: its lines are those of the sets in its range.
    return tx.exists(
        "select 1 from segment s join batch b using (batch_id) join pipeline p using (pipeline)"
        " where b.pipeline = %s and p.rows_table is not null"
        " and (s.row_set is not null or s.state = 'folded' and s.matched > 0) limit 1",
        (pipeline,),
    )


def live_sets(tx: Transaction, pipeline: str) -> list[int]:
    """The sets of live segments."""
    return tx.scalars(
        "select s.row_set from segment s join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s and s.state = 'live' and s.row_set is not null",
        (pipeline,),
    )


def clear_outbox(tx: Transaction, segment_ids: Sequence[int]) -> None:
    """Record that readers see what the ledger has decided of these segments."""
    tx.execute("delete from row_outbox where segment_id in %s", (segment_ids,))


def counted_minutes(tx: Transaction, tables: Tables, pipeline: str) -> Iterator[CountedMinute]:
    """What the live segments have counted, in order of set and minute.

    Args:
        tx: An open transaction; read all before its next statement.
        tables: The pipeline's tables.
        pipeline: The pipeline.
    """
    rows = tx.stream(
        "select s.segment_id, s.row_set, s.matched,"
        f" cast(c.`{TIME}` as char) as log_time, coalesce(sum(c.`{LINES}`), 0) as `lines`"
        " from segment s join topic_incarnation i using (incarnation_id)"
        f" left join `{tables.contributions}` c using (segment_id)"
        " where i.pipeline = %s and s.state = 'live'"
        f" group by s.segment_id, c.`{TIME}` order by s.row_set, c.`{TIME}`",
        (pipeline,),
    )
    for row in rows:
        yield record(CountedMinute, row)
