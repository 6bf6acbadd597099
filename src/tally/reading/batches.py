"""Reading batches: a list of them, or one with its ranges and counts."""

from dataclasses import dataclass

from tally.context import Context
from tally.formatting import plural
from tally.ledger import records
from tally.ledger.batches import unknown_batch
from tally.ledger.records import BatchRecord, Replaced
from tally.ledger.replays import ReplayRecord, find_replay
from tally.ledger.results import ResultRow, count_touched, top_rows
from tally.ledger.tables import tables_of
from tally.model import BatchKind, BatchState, SegmentState
from tally.reading.counts import Columns
from tally.views import CountedRange, view_of

BATCHES_NAMED = 5
RUN_BATCHES_MAX = 200
"""The largest number of batches of one run that are read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchesView:
    """Batches of a pipeline."""

    pipeline: str
    """The pipeline."""
    batches: tuple[BatchRecord, ...]
    """Newest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentView(CountedRange):
    """What the ledger holds about a segment of a batch."""

    segment_id: int
    """The ledger's key."""
    topic_id: str
    """Kafka's id of the topic when the range was planned."""
    state: SegmentState
    """The segment's state."""
    superseded_by: int | None
    """The segment that superseded it."""
    superseded_by_batch: int | None
    """The batch of that segment."""
    replaces: tuple[Replaced, ...]
    """The segments that it was planned to replace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchView(BatchRecord):
    """Everything that the ledger holds about a batch, its ranges and what it adds to the result."""

    replay: ReplayRecord | None
    """The replay that it is part of; null for an ingest batch."""
    ranges: tuple[SegmentView, ...]
    """Its segments, in order of topic, partition and offset."""
    columns: Columns
    """Which columns the rows have."""
    minutes_touched: int
    """How many minutes it has counted lines for."""
    rows_touched: int
    """How many rows of minutes and label values."""
    minutes: tuple[ResultRow, ...]
    """The rows to which it adds most lines, with what it adds."""

    @property
    def replaced(self) -> str:
        """What it replaces: ``3 segments of batches 5, 6``; empty for nothing."""
        found = [one.batch_id for segment in self.ranges for one in segment.replaces]
        ids = sorted(set(found))
        named = ", ".join(map(str, ids)) if len(ids) <= BATCHES_NAMED else f"{ids[0]} to {ids[-1]}"
        of = "batch" if len(ids) == 1 else "batches"
        return f"{plural(len(found), 'segment')} of {of} {named}" if found else ""


def batches(
    ctx: Context,
    pipeline: str,
    *,
    state: BatchState | None = None,
    kind: BatchKind | None = None,
    before: int | None = None,
    limit: int = 20,
) -> BatchesView:
    """The pipeline's batches, newest first; the arguments are those of the ledger's list.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = records.list_batches(
            tx, pipeline, state=state, kind=kind, before=before, limit=limit
        )
    return BatchesView(pipeline=pipeline, batches=tuple(found))


def run_batches(
    ctx: Context, pipeline: str, dag_id: str, run_id: str, replay_id: int | None = None
) -> list[BatchRecord]:
    """The batches of a run of Airflow, newest first, the latest of them.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        dag_id: The run's DAG.
        run_id: The run.
        replay_id: The replay that the run has recorded: then all of its batches are meant, also
            those that were replanned without a run.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    most = RUN_BATCHES_MAX
    with ctx.database.transaction(read_only=True) as tx:
        if replay_id is None:
            return records.batches_of_run(tx, pipeline, dag_id, run_id, limit=most)
        return records.batches_of_replay(tx, pipeline, replay_id, limit=most)


def batch(ctx: Context, batch_id: int, *, rows: int = 10, pipeline: str | None = None) -> BatchView:
    """One batch, read from one snapshot of the ledger.

    Args:
        ctx: What is needed from outside.
        batch_id: The ledger's key.
        rows: The largest number of result rows that are shown.
        pipeline: The pipeline that it must be of; any when None.

    Raises:
        UnknownBatchError: The ledger, or the pipeline, has no batch with this id.
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        record = records.batch_record(tx, batch_id)
        if pipeline not in {None, record.pipeline}:
            raise unknown_batch(batch_id)
        tables = tables_of(tx, record.pipeline)
        replaced = records.replaced_by(tx, batch_id)
        minutes_touched, rows_touched = count_touched(tx, tables, batch_id)
        return view_of(
            BatchView,
            record,
            replay=None if record.replay_id is None else find_replay(tx, record.replay_id),
            ranges=tuple(
                view_of(SegmentView, one, replaces=tuple(replaced.get(one.segment_id, ())))
                for one in records.segments_of(tx, batch_id)
            ),
            columns=Columns.of(tables),
            minutes_touched=minutes_touched,
            rows_touched=rows_touched,
            minutes=tuple(top_rows(tx, tables, batch_id, rows)),
        )
