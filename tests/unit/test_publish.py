"""Which sets of rows are shown, and what the audit says of them; without a server."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes import ManualClock
from tests.unit.values import blank, pipeline, span

from tally.deliveries import kept_lines as module
from tally.deliveries.kept_lines import KeptLines, Verdict, kind_of_sets, verdict
from tally.deliveries.row_audit import Folds, differences
from tally.deliveries.row_sets import RowSets
from tally.deliveries.set_store import KeptSet
from tally.deliveries.set_tables import SetPlace
from tally.errors import PackageMissingError
from tally.ledger.line_sets import Standing
from tally.ledger.records import SegmentRecord
from tally.model import SegmentState, SegmentTotals

MINUTE = "2017-07-30 14:09:00"


def test_the_ledger_decides_what_becomes_of_a_set() -> None:
    """Set 7 of segment 1, of attempt 1 or 2, or of one that the ledger no longer knows."""
    for attempt, state, line_set, told in (
        *((2, "planned", None, Verdict.WAITS), (1, "planned", None, Verdict.DROPPED)),
        (3, "planned", None, Verdict.DROPPED),
        *((2, "live", 7, Verdict.LIVE), (2, "live", 8, Verdict.DROPPED)),
        *((2, "superseded", 7, Verdict.DROPPED), (2, "superseded", 8, Verdict.DROPPED)),
        (2, "abandoned", None, Verdict.DROPPED),
    ):
        found = Standing(state=SegmentState(state), line_set=line_set, attempt=2)
        waiting = blank(SetPlace, set_id=7, segment_id=1, attempt=attempt)
        assert verdict(waiting, found) is told, (attempt, state, line_set)
        assert verdict(waiting, None) is Verdict.DROPPED


PLACE = {"cluster_id": "c", "topic_id": "t", "partition_id": 0, "attempt": 1}


def kept(segment_id: int, rows: int) -> KeptSet:
    """The rows of a segment, which begins at ten times its number."""
    begin = segment_id * 10
    ids = dict.fromkeys(("set_id", "segment_id", "batch_id"), segment_id)
    offsets = {"from_offset": begin, "until_offset": begin + 10}
    place = SetPlace(topic="alog", **ids, **offsets, **PLACE)
    return KeptSet(place=place, minutes={MINUTE: rows})


def folded(segment_id: int, from_offset: int, until_offset: int, lines: int) -> SegmentRecord:
    """A folded segment."""
    totals = SegmentTotals(records=lines, matched=lines, unmatched=0, malformed=0)
    where = span(from_offset, until_offset)
    ids = {"topic_id": "t", "cluster_id": "c"}
    return blank(SegmentRecord, segment_id=segment_id, range=where, totals=totals, **ids)


def test_rows_of_folded_segments_add_up() -> None:
    """They belong to the range in which they begin; outside of it to none."""
    folds = Folds([folded(90, 10, 30, lines=5), folded(91, 40, 50, lines=1)])
    store = [kept(1, rows=2), kept(2, rows=3), kept(3, rows=1)]
    outside = "1 rows of a segment that is not part of the result"
    assert dict(differences([], store, folds)) == {3: outside}
    assert dict(folds.differences()) == {91: "1 lines were counted, 0 rows are there"}


def test_what_differs_for_a_moment_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is committed between the two looks differs in one of them."""
    patience = SimpleNamespace(doubt_tries=3, doubt_pause_s=0)
    ctx: Any = SimpleNamespace(clock=ManualClock(), patience=patience)
    looks = iter([{1: "a", 2: "b"}, {2: "b", 3: "c"}, {2: "b", 3: "c"}])
    monkeypatch.setattr(KeptLines, "show", lambda *_: None)
    monkeypatch.setattr(KeptLines, "store", SimpleNamespace(view="x_rows"))
    monkeypatch.setattr(module, "different_segments", lambda *_: next(looks))
    found = KeptLines(ctx, pipeline(delivery="rows")).violations()
    assert [(v.check, v.where, v.detail) for v in found] == [("rows", "segment 2 in x_rows", "b")]


def test_files_without_pyarrow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a host that has Tally without Spark."""
    monkeypatch.setitem(sys.modules, "tally.deliveries.file_sets", None)
    with pytest.raises(PackageMissingError, match="first keeps its lines in files"):
        kind_of_sets(pipeline(delivery="files", files_url="/kept"))
    assert kind_of_sets(pipeline(delivery="rows")) is RowSets


def test_sets_that_a_replay_replaced_meanwhile_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Set 2 was live when the ledger was asked first, and gone when the table of sets was."""
    looks = iter([[1, 2, 3], [1, 3, 4]])
    monkeypatch.setattr(KeptLines, "_live_sets", lambda *_: next(looks))
    store: Any = SimpleNamespace(known={1}.intersection)
    assert KeptLines(store, pipeline(delivery="rows"))._lost_sets(store) == {3}
