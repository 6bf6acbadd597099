"""Bringing the ledger's decision to the rows: which sets readers see.

A batch is committed in the ledger first; its rows, which are all safe by then, are shown next.
Whoever runs or audits the pipeline afterwards does it when this one is killed in between.
"""

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import groupby
from operator import attrgetter

from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.deliveries.choice import store_by
from tally.deliveries.content import KeptMinute
from tally.deliveries.set_store import SetStore, WaitingSet
from tally.errors import DataLossError, TallyError
from tally.formatting import plural
from tally.ledger.invariants import Violation
from tally.ledger.row_sets import (
    CountedMinute,
    FoldedRange,
    Standing,
    clear_outbox,
    counted_minutes,
    folded_ranges,
    live_sets,
    outbox,
    standings,
)
from tally.ledger.tables import find_tables, tables_to_read
from tally.model import SegmentState

log = logging.getLogger(__name__)

_SHOWN_MAX = 20
_READ_FILES_S = 3_600
_ASKED_AT_ONCE = 1_000


class Verdict(StrEnum):
    """What becomes of a set that is not live yet."""

    LIVE = "live"
    DROPPED = "dropped"
    WAITS = "waits"


def verdict(waiting: WaitingSet, segment: Standing | None) -> Verdict:
    """What becomes of a set, by what the ledger says of its segment.

    A set whose attempt may still commit waits. An attempt that was claimed after it never lets it,
    and a later attempt than the newest one is of a ledger that was restored since.
    """
    if segment is None:
        return Verdict.DROPPED
    if segment.row_set == waiting.set_id:
        is_in_result = segment.state in {SegmentState.LIVE, SegmentState.FOLDED}
        return Verdict.LIVE if is_in_result else Verdict.DROPPED
    if segment.state is SegmentState.PLANNED and waiting.attempt == segment.attempt:
        return Verdict.WAITS
    return Verdict.DROPPED


def store_of(ctx: Context, pipeline: Pipeline) -> SetStore | None:
    """Where a pipeline keeps its lines; None when it keeps none."""
    return store_by(ctx.database, ctx.rows, pipeline)


def publish(ctx: Context, pipeline: Pipeline) -> None:
    """Show the rows of committed segments, and take away those of replaced and failed ones.

    Nothing happens for a pipeline that keeps no lines. It can be called at any time, by several
    processes at once.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.

    Raises:
        ConfigError: The tables have the lines of another pipeline, or of another ledger.
        SchemaError: They are not there, or the view is to be made again.
        MySQLUnavailableError: A server did not answer; the same call may succeed later.
    """
    store = store_of(ctx, pipeline)
    if store is None or not _is_recorded(ctx, pipeline):
        return
    store.check()
    # In this order: what is in the outbox was sealed before, so it is waiting, or shown already.
    with ctx.database.transaction(read_only=True) as tx:
        committed = outbox(tx, pipeline.name)
    waiting = store.waiting()
    # As if to write, which a replica refuses: it may lag, and what it does not know is dropped.
    with ctx.database.transaction(
        isolation="repeatable read", read_only=not waiting, keep=False
    ) as tx:
        known = standings(tx, sorted({w.segment_id for w in waiting} | committed.keys()))
    by_verdict: dict[Verdict, list[int]] = {of: [] for of in Verdict}
    for one in waiting:
        by_verdict[verdict(one, known.get(one.segment_id))].append(one.set_id)
    live, dropped = by_verdict[Verdict.LIVE], by_verdict[Verdict.DROPPED]
    if live or dropped:
        store.publish(live, dropped)
    # What has changed stays in the outbox until the list has it. Always: whoever was slower may
    # have put an older list in its place, and died.
    store.tell()
    # A set that is not there, as on another server, stays in the outbox, and its lines in Kafka's
    # reach: its segment is not folded.
    done = store.shown(committed) if committed else set()
    # One that is not known was shown by another process meanwhile, and pruned.
    done |= {s for s in committed if s in known and known[s].state is SegmentState.SUPERSEDED}
    if done:
        ctx.database.run(lambda tx: clear_outbox(tx, sorted(done)))
    _delete_dropped(store)


def _is_recorded(ctx: Context, pipeline: Pipeline) -> bool:
    """Whether it keeps its lines where the ledger says; otherwise the plan tells why not."""
    with ctx.database.transaction(read_only=True) as tx:
        tables = find_tables(tx, pipeline.name)
    return tables is None or tables.rows_view == pipeline.rows_view


def _delete_dropped(store: SetStore) -> None:
    """Best effort: nobody sees these rows, and the next call tries again."""
    with _errors_logged("dropped_rows_not_deleted", view=store.view):
        store.delete_dropped()


def delete_orphans(ctx: Context, pipeline: Pipeline) -> None:
    """Delete files that a killed writer has left and that no set knows; best effort, daily.

    None is deleted while the ledger has a set that the table of sets lacks: that table was restored
    to an older state, and what it does not know may be lines that are counted.
    """
    store = store_of(ctx, pipeline)
    if store is None:
        return
    with _errors_logged("orphans_not_deleted", view=store.view):
        store.check()
        if lost := len(_lost_sets(ctx, pipeline, store)):
            raise DataLossError(
                f"{store.sets} lacks {plural(lost, 'set')} of live segments of {pipeline.name}: "
                "nothing that it does not know is deleted",
                next_step=f"tally audit {pipeline.name} names the segments: docs/runbook.md, "
                "audit-finding, rows",
            )
        if deleted := store.delete_orphans():
            log.info("orphans_deleted", extra={"view": store.view, "sets": deleted})


def _lost_sets(ctx: Context, pipeline: Pipeline, store: SetStore) -> set[int]:
    """The sets of live segments that the table of sets lacks."""
    sets = _live_sets(ctx, pipeline)
    lost = set(sets)
    for at in range(0, len(sets), _ASKED_AT_ONCE):
        lost -= store.known(sets[at : at + _ASKED_AT_ONCE])
    # A replay may have replaced them, and deleted them there, since the ledger was asked.
    return lost.intersection(_live_sets(ctx, pipeline)) if lost else lost


def _live_sets(ctx: Context, pipeline: Pipeline) -> list[int]:
    with ctx.database.transaction(read_only=True) as tx:
        return live_sets(tx, pipeline.name)


def publish_soon(ctx: Context, pipeline: Pipeline) -> None:
    """Show the rows of what was just committed; an error is logged, as the next plan shows them."""
    with _errors_logged("rows_not_shown", pipeline=pipeline.name):
        publish(ctx, pipeline)


@contextmanager
def _errors_logged(event: str, **where: str) -> Iterator[None]:
    """Log an error as a warning: somebody tries it again later."""
    try:
        yield
    except TallyError as error:
        log.warning(event, extra={**where, "cause": error.what})


def row_violations(ctx: Context, pipeline: Pipeline) -> list[Violation]:
    """Every segment in the result whose rows are not the lines that it has counted, by minute.

    Of folded segments only the sum of all minutes is known.

    There is no common snapshot of two servers, so what differs is looked at again, a little later.

    Raises:
        MySQLUnavailableError: A server did not answer.
    """
    store = store_of(ctx, pipeline)
    if store is None:
        return []
    publish(ctx, pipeline)
    found = _differences(ctx, pipeline, store)
    for _ in range(ctx.patience.doubt_tries - 1):
        if not found:
            break
        ctx.clock.sleep(ctx.patience.doubt_pause_s)
        publish(ctx, pipeline)
        again = _differences(ctx, pipeline, store)
        found = {segment_id: what for segment_id, what in again.items() if segment_id in found}
    return [
        Violation(check="rows", where=f"segment {segment_id} in {store.view}", detail=detail)
        for segment_id, detail in found.items()
    ]


def _differences(ctx: Context, pipeline: Pipeline, store: SetStore) -> dict[int, str]:
    """By segment what is different."""
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        # The server waits with the ledger's minutes while those of many files are read.
        tx.execute(f"set session net_write_timeout = {_READ_FILES_S}")
        folds = Folds(folded_ranges(tx, pipeline.name))
        counted = counted_minutes(tx, tables_to_read(tx, pipeline), pipeline.name)
        found = dict(differences(counted, store.live_minutes(), folds))
    return found | dict(folds.differences())


class Folds:
    """Adds up the rows of segments that were folded.

    Args:
        ranges: Of folded segments.
    """

    def __init__(self, ranges: Iterable[FoldedRange]) -> None:
        self._of_partition: dict[tuple[str, str, int], list[FoldedRange]] = {}
        for one in sorted(ranges, key=attrgetter("from_offset")):
            place = (one.cluster_id, one.topic_id, one.partition_id)
            self._of_partition.setdefault(place, []).append(one)
        self._rows: Counter[int] = Counter()

    def add(self, kept: Sequence[KeptMinute]) -> bool:
        """Whether the rows of a segment lie in a folded range; they are added to its own."""
        first = kept[0]
        place = (first.cluster_id, first.topic_id, first.partition_id)
        ranges = self._of_partition.get(place, [])
        at = bisect_right(ranges, first.from_offset, key=attrgetter("from_offset")) - 1
        if at < 0 or first.from_offset >= ranges[at].until_offset:
            return False
        self._rows[ranges[at].segment_id] += sum(k.rows for k in kept)
        return True

    def differences(self) -> Iterator[tuple[int, str]]:
        """The folded segments that have not as many rows as lines, and what is different."""
        for ranges in self._of_partition.values():
            for one in ranges:
                if (rows := self._rows[one.segment_id]) != one.matched:
                    yield one.segment_id, _unequal(one.matched, rows)


def differences(
    counted: Iterable[CountedMinute], kept: Iterable[KeptMinute], folds: Folds
) -> Iterator[tuple[int, str]]:
    """The segments whose rows are not what they have counted.

    Args:
        counted: By the ledger, in order of set.
        kept: On the server of the rows, in order of set.
        folds: Takes the rows of segments that were folded.

    Yields:
        The segment, and what is different.
    """
    ledgers = ((n or 0, list(rows)) for n, rows in groupby(counted, attrgetter("row_set")))
    stores = ((n, list(rows)) for n, rows in groupby(kept, attrgetter("set_id")))
    one, other = next(ledgers, None), next(stores, None)
    while one is not None or other is not None:
        at = min(side[0] for side in (one, other) if side is not None)
        of_ledger = one[1] if one is not None and one[0] == at else []
        of_store = other[1] if other is not None and other[0] == at else []
        yield from _of_set(of_ledger, of_store, folds)
        if of_ledger:
            one = next(ledgers, None)
        if of_store:
            other = next(stores, None)


def _of_set(
    counted: Sequence[CountedMinute], kept: Sequence[KeptMinute], folds: Folds
) -> Iterator[tuple[int, str]]:
    """What is different in a set; no two segments may have the same one."""
    if not counted:
        if not folds.add(kept) and (what := _difference((), kept)):
            yield kept[0].segment_id, what
        return
    of_segment: dict[int, list[CountedMinute]] = {}
    for one in counted:
        of_segment.setdefault(one.segment_id, []).append(one)
    for segment_id, minutes in of_segment.items():
        if what := _difference(minutes, kept):
            yield segment_id, what


def _difference(counted: Sequence[CountedMinute], kept: Sequence[KeptMinute]) -> str:
    """What is different in one segment; '' when nothing is."""
    if not counted:
        return f"{sum(k.rows for k in kept)} rows of a segment that is not part of the result"
    if not kept:
        return f"readers do not see its set {counted[0].row_set}"
    if kept[0].trouble or kept[0].segment_id != counted[0].segment_id:
        of_another = f"its set {counted[0].row_set} is that of segment {kept[0].segment_id}"
        return kept[0].trouble or of_another
    rows = {k.log_time: k.rows for k in kept if k.log_time is not None}
    if sum(rows.values()) != counted[0].matched:
        return _unequal(counted[0].matched, sum(rows.values()))
    lines = {c.log_time: c.lines for c in counted if c.log_time is not None}
    if lines != rows:
        minutes = sorted(m for m in lines.keys() | rows.keys() if lines.get(m) != rows.get(m))
        told = [f"{m}: {lines.get(m, 0)} lines, {rows.get(m, 0)} rows" for m in minutes]
        return "; ".join(told[:_SHOWN_MAX])
    return ""


def _unequal(lines: int, rows: int) -> str:
    return f"{lines} lines were counted, {rows} rows are there"
