"""Reading batches: a list of them, or one with its ranges and counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tally.app.counts import Columns, RowView
from tally.context import Context
from tally.formatting import plural
from tally.ledger.batches import unknown_batch
from tally.ledger.records import (
    BatchRecord,
    SegmentRecord,
    batch_record,
    batches_of_replay,
    batches_of_run,
    list_batches,
    segments_of,
)
from tally.ledger.replacements import Replaced, replaced_by, successors_of
from tally.ledger.replays import ReplayRecord, find_replay
from tally.ledger.results import count_touched, top_rows
from tally.ledger.tables import tables_of
from tally.model import BatchKind, BatchState, SegmentState
from tally.views import CountedRangeView, values_of

BATCHES_NAMED = 5
RUN_BATCHES_MAX = 200
"""The largest number of batches of one run that are read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchesRequest:
    """Which batches to list."""

    pipeline: str
    """The pipeline."""
    state: BatchState | None = None
    """Only those in this state."""
    kind: BatchKind | None = None
    """Only those of this kind."""
    before: int | None = None
    """Only those with a smaller id."""
    limit: int = 20
    """The largest number of batches."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchesView:
    """Batches of a pipeline."""

    pipeline: str
    """The pipeline."""
    batches: tuple[BatchRecord, ...]
    """Newest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRequest:
    """Which batch to show."""

    batch_id: int
    """The ledger's key."""
    rows: int = 10
    """The largest number of result rows that are shown."""
    pipeline: str | None = None
    """The pipeline that it must be of; any when None."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplacedView:
    """A segment that another one replaces."""

    segment_id: int
    """The segment that is replaced."""
    batch_id: int
    """The batch that counted it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SegmentView(CountedRangeView):
    """Everything that the ledger holds about a segment."""

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
    replaces: tuple[ReplacedView, ...]
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
    minutes: tuple[RowView, ...]
    """The rows to which it adds most lines, with what it adds."""

    @property
    def replaced(self) -> str:
        """What it replaces: ``3 segments of batches 5, 6``; empty for nothing."""
        found = [one for segment in self.ranges for one in segment.replaces]
        ids = sorted({one.batch_id for one in found})
        if not ids:
            return ""
        few = len(ids) <= BATCHES_NAMED
        named = ", ".join(map(str, ids)) if few else f"{ids[0]} to {ids[-1]}"
        word = "batch" if len(ids) == 1 else "batches"
        return f"{plural(len(found), 'segment')} of {word} {named}"


def batches(ctx: Context, request: BatchesRequest) -> BatchesView:
    """The pipeline's batches, newest first.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = list_batches(
            tx,
            request.pipeline,
            state=request.state,
            kind=request.kind,
            before=request.before,
            limit=request.limit,
        )
    return BatchesView(pipeline=request.pipeline, batches=tuple(found))


def run_batches(
    ctx: Context, pipeline: str, dag_id: str, run_id: str, replay_id: int | None = None
) -> BatchesView:
    """The batches of a run of Airflow, newest first, the latest of them.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        dag_id: The run's DAG.
        run_id: The run.
        replay_id: The replay that the run has recorded: then all of its batches are meant, also
            those that were replanned for nobody's run.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    most = RUN_BATCHES_MAX
    with ctx.database.transaction(read_only=True) as tx:
        found = (
            batches_of_run(tx, pipeline, dag_id, run_id, limit=most)
            if replay_id is None
            else batches_of_replay(tx, pipeline, replay_id, limit=most)
        )
    return BatchesView(pipeline=pipeline, batches=tuple(found))


def batch(ctx: Context, request: BatchRequest) -> BatchView:
    """One batch, read from one snapshot of the ledger.

    Raises:
        UnknownBatchError: The ledger, or the pipeline, has no batch with this id.
        MySQLUnavailableError: The server did not answer.
    """
    number = request.batch_id
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        record = batch_record(tx, number)
        if request.pipeline not in {None, record.pipeline}:
            raise unknown_batch(number)
        tables = tables_of(tx, record.pipeline)
        replaced, successors = replaced_by(tx, number), successors_of(tx, number)
        minutes_touched, rows_touched = count_touched(tx, tables, number)
        return BatchView(
            **values_of(record),
            replay=None if record.replay_id is None else find_replay(tx, record.replay_id),
            ranges=tuple(_segment(s, replaced, successors) for s in segments_of(tx, number)),
            columns=Columns.of(tables),
            minutes_touched=minutes_touched,
            rows_touched=rows_touched,
            minutes=tuple(map(RowView.of, top_rows(tx, tables, number, request.rows))),
        )


def _segment(
    segment: SegmentRecord,
    replaced: Mapping[int, Sequence[Replaced]],
    successors: Mapping[int, int],
) -> SegmentView:
    number = segment.segment_id
    return SegmentView.counted(
        segment.range,
        segment.totals,
        segment_id=number,
        topic_id=segment.topic_id,
        state=segment.state,
        superseded_by=segment.superseded_by,
        superseded_by_batch=successors.get(number),
        replaces=tuple(
            ReplacedView(segment_id=one.replaced_id, batch_id=one.replaced_batch_id)
            for one in replaced.get(number, ())
        ),
    )
