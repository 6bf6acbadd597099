"""Kept lines: each counted line is a row or in a file, exactly once, beside the sums.

A batch is committed in the ledger first; its lines, which are all safe by then, are shown next.
The next run or audit of the pipeline does it when this process is killed in between.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from tally.aggregates.counts import CountRequest, Counts
from tally.config.pipeline import Pipeline
from tally.context import Context, OpenContext
from tally.deliveries.contract import Delivery, LineWriter
from tally.deliveries.row_audit import different_segments
from tally.deliveries.row_sets import RowSets
from tally.deliveries.set_store import SetStore
from tally.deliveries.set_tables import SetPlace
from tally.errors import DataLossError, PackageMissingError, TallyError
from tally.formatting import plural
from tally.ledger import line_sets
from tally.ledger.erasures import erased_of_segments
from tally.ledger.invariants import Violation
from tally.ledger.tables import find_tables
from tally.model import Batch, SegmentState
from tally.mysql.transactions import Database, Transaction

log = logging.getLogger(__name__)


def open_store(ledger: Database, database: Database, pipeline: Pipeline) -> SetStore:
    """The sets of a pipeline that keeps its lines.

    Args:
        ledger: The ledger's database; it decides which sets are shown.
        database: Where the tables of the sets are.
        pipeline: The pipeline.

    Raises:
        SchemaError: The ledger is not migrated.
    """
    with ledger.transaction(read_only=True) as tx:
        decides = line_sets.ledger_id(tx)
    return kind_of_sets(pipeline)(database=database, pipeline=pipeline, ledger_id=decides)


def kind_of_sets(pipeline: Pipeline) -> type[SetStore]:
    """What holds the lines. Another store of lines, a subclass of ``SetStore``, is added here.

    Raises:
        PackageMissingError: PyArrow is not installed, which writes files.
    """
    if pipeline.delivery != "files":
        return RowSets
    try:
        from tally.deliveries.file_sets import FileSets  # noqa: PLC0415 - PyArrow is heavy
    except ImportError as error:
        raise PackageMissingError(
            f"pipeline {pipeline.name} keeps its lines in files, which PyArrow writes: {error}",
            next_step="pip install 'kafka-tally[spark]'",
        ) from error
    return FileSets


def keep(open_context: OpenContext, request: CountRequest) -> LineWriter:
    """Open the set of a request's only range, in the Spark task that reads it.

    Args:
        open_context: Makes a context in the executor.
        request: The request.

    Raises:
        FencedError: A newer attempt has begun.
    """
    store = KeptLines(open_context(), request.pipeline).store
    store.check()
    (segment,) = request.claimed.segments
    return store.writer(store.open_set(request.claimed, segment))


class Verdict(StrEnum):
    """What becomes of a set that is not live yet."""

    LIVE = "live"
    DROPPED = "dropped"
    WAITS = "waits"


def verdict(waiting: SetPlace, segment: line_sets.Standing | None) -> Verdict:
    """What becomes of a set, by what the ledger has of its segment.

    A set whose attempt may still commit waits. An attempt that was claimed after it never lets it,
    and a later attempt than the newest one is of a ledger that was restored since.
    """
    if segment is None:
        return Verdict.DROPPED
    if segment.line_set == waiting.set_id:
        is_in_result = segment.state in {SegmentState.LIVE, SegmentState.FOLDED}
        return Verdict.LIVE if is_in_result else Verdict.DROPPED
    if segment.state is SegmentState.PLANNED and waiting.attempt == segment.attempt:
        return Verdict.WAITS
    return Verdict.DROPPED


@dataclass(frozen=True, slots=True)
class KeptLines(Delivery):
    """Lines are written as a set of one attempt; the ledger says which set readers see.

    The lines are safe before the commit (:class:`tally.deliveries.set_store.SetStore`), and are
    shown to readers after it.
    """

    @property
    def store(self) -> SetStore:
        """Where the lines are."""
        return open_store(self.ctx.database, self.ctx.rows, self.pipeline)

    @property
    def open_set(self) -> Callable[[CountRequest], LineWriter]:
        """Opens the set of a segment."""
        return partial(keep, self.ctx.in_task)

    def commit(self, tx: Transaction, batch: Batch, counts: Counts) -> None:
        """Make the set that was written that of the batch's only segment."""
        line_set = line_sets.record_line_set(tx, batch, counts.totals, counts.line_set)
        self.store.check_sealed(line_set)

    def show(self) -> None:
        """Show the rows of committed segments, and take away those of replaced and failed ones.

        Raises:
            ConfigError: The tables have the lines of another pipeline, or of another ledger.
            SchemaError: They are not there, or the view is to be made again.
            MySQLUnavailableError: A server did not answer; the same call may succeed later.
        """
        ctx, store = self.ctx, self.store
        if not self._is_recorded():
            return
        store.check()
        # In this order: what is in the outbox was sealed before, so it is waiting, or shown
        # already.
        with ctx.database.transaction(read_only=True) as tx:
            committed = line_sets.outbox(tx, self.pipeline.name)
        waiting = store.waiting()
        # As if to write, which a replica refuses: it may lag, and what it does not know is dropped.
        with ctx.database.transaction(
            isolation="repeatable read", read_only=not waiting, keep=False
        ) as tx:
            known = line_sets.standings(
                tx, sorted({w.segment_id for w in waiting} | committed.keys())
            )
            erased = erased_of_segments(tx, [w.segment_id for w in waiting])
        by_verdict: dict[Verdict, list[SetPlace]] = {of: [] for of in Verdict}
        for one in waiting:
            by_verdict[verdict(one, known.get(one.segment_id))].append(one)
        live, dropped = by_verdict[Verdict.LIVE], by_verdict[Verdict.DROPPED]
        for segment_id, first, until in erased:
            for one in [one for one in live if one.segment_id == segment_id]:
                # One whose text cannot be erased is not shown, and stays in the outbox.
                with _errors_logged("lines_not_erased", view=store.view):
                    live.remove(one)
                    store.erase(one, first, until)
                    live.append(one)
        if live or dropped:
            store.publish([one.set_id for one in live], [one.set_id for one in dropped])
        # What has changed stays in the outbox until the list has it. Always: whoever was slower may
        # have put an older list in its place, and died.
        store.inform_readers()
        # A set that is not there, as on another server, stays in the outbox, and its lines in
        # Kafka's reach: its segment is not folded.
        done = store.shown(committed) if committed else set()
        # One that is not known was shown by another process meanwhile, and pruned.
        done |= {s for s in committed if s in known and known[s].state is SegmentState.SUPERSEDED}
        if done:
            ctx.database.run(lambda tx: line_sets.clear_outbox(tx, sorted(done)))
        # No reader sees these rows, and the next call tries again.
        with _errors_logged("dropped_rows_not_deleted", view=store.view):
            store.delete_dropped()

    def _is_recorded(self) -> bool:
        """Whether it keeps its lines where the ledger says; otherwise the plan gives the reason."""
        with self.ctx.database.transaction(read_only=True) as tx:
            tables = find_tables(tx, self.pipeline.name)
        return tables is None or tables.rows_view == self.pipeline.rows_view

    def show_soon(self) -> None:
        """Show them, or leave it to the next plan."""
        with _errors_logged("rows_not_shown", pipeline=self.pipeline.name):
            self.show()

    def violations(self) -> list[Violation]:
        """Every segment whose rows are not the lines that it has counted, by minute.

        Of folded segments only the sum of all minutes is known. There is no common snapshot of two
        servers, so what differs is read again a little later.
        """
        ctx, store = self.ctx, self.store
        self.show()
        found = different_segments(ctx, self.pipeline, store)
        for _ in range(ctx.patience.doubt_tries - 1):
            if not found:
                break
            ctx.clock.sleep(ctx.patience.doubt_pause_s)
            self.show()
            again = different_segments(ctx, self.pipeline, store)
            found = {segment_id: what for segment_id, what in again.items() if segment_id in found}
        return [
            Violation(check="rows", where=f"segment {segment_id} in {store.view}", detail=detail)
            for segment_id, detail in found.items()
        ]

    def tidy(self) -> None:
        """Delete files that a killed writer has left and that no set knows; best effort.

        None is deleted while the ledger has a set that the table of sets lacks: that table was
        restored to an older state, and what it does not know may be lines that are counted.
        """
        store = self.store
        with _errors_logged("orphans_not_deleted", view=store.view):
            store.check()
            if lost := len(self._lost_sets(store)):
                raise DataLossError(
                    f"{store.sets} lacks {plural(lost, 'set')} of live segments of "
                    f"{self.pipeline.name}: nothing that it does not know is deleted",
                    next_step=f"tally audit {self.pipeline.name} names the segments: "
                    "docs/runbook.md, audit-finding, rows",
                )
            if deleted := store.delete_orphans():
                log.info("orphans_deleted", extra={"view": store.view, "sets": deleted})

    def _lost_sets(self, store: SetStore) -> set[int]:
        """The sets of live segments that the table of sets lacks."""
        sets = self._live_sets()
        lost = set(sets) - store.known(sets)
        # A replay may have replaced them, and deleted them there, since the ledger was asked.
        return lost.intersection(self._live_sets()) if lost else lost

    def _live_sets(self) -> list[int]:
        with self.ctx.database.transaction(read_only=True) as tx:
            return line_sets.live_sets(tx, self.pipeline.name)


@contextmanager
def _errors_logged(event: str, **where: str) -> Iterator[None]:
    """Log an error as a warning: a later call tries it again."""
    try:
        yield
    except TallyError as error:
        log.warning(event, extra={**where, "cause": error.what})


def delivery_of(ctx: Context, pipeline: Pipeline) -> Delivery:
    """The delivery of a pipeline."""
    return Delivery(ctx, pipeline) if pipeline.rows_view is None else KeptLines(ctx, pipeline)
