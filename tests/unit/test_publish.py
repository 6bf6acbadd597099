"""Which sets of rows are shown, and what the audit says of them; without a server."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes import ManualClock
from tests.unit.values import pipeline

from tally.config.servers import MySQLSettings
from tally.deliveries import publish as module
from tally.deliveries.choice import store_in
from tally.deliveries.content import KeptMinute
from tally.deliveries.publish import Folds, Verdict, differences, row_violations, verdict
from tally.deliveries.set_store import WaitingSet
from tally.errors import PackageMissingError
from tally.ledger.row_sets import FoldedRange, Standing
from tally.model import SegmentState
from tally.mysql.transactions import Database

MINUTE = "2017-07-30 14:09:00"


def test_the_ledger_decides_what_becomes_of_a_set() -> None:
    """Set 7 of segment 1, of attempt 1 or 2, or of one that the ledger no longer knows."""
    for attempt, state, row_set, told in (
        *((2, "planned", None, Verdict.WAITS), (1, "planned", None, Verdict.DROPPED)),
        (3, "planned", None, Verdict.DROPPED),
        *((2, "live", 7, Verdict.LIVE), (2, "live", 8, Verdict.DROPPED)),
        *((2, "superseded", 7, Verdict.DROPPED), (2, "superseded", 8, Verdict.DROPPED)),
        (2, "abandoned", None, Verdict.DROPPED),
    ):
        found = Standing(segment_id=1, state=SegmentState(state), row_set=row_set, attempt=2)
        waiting = WaitingSet(set_id=7, segment_id=1, attempt=attempt)
        assert verdict(waiting, found) is told, (attempt, state, row_set)
        assert verdict(waiting, None) is Verdict.DROPPED


PLACE = {"cluster_id": "c", "topic_id": "t", "partition_id": 0}


def kept(segment_id: int, rows: int) -> KeptMinute:
    """The rows of a segment, which begins at ten times its number."""
    keys = {"set_id": segment_id, "from_offset": segment_id * 10, **PLACE}
    return KeptMinute(segment_id=segment_id, log_time=MINUTE, rows=rows, **keys)


def test_rows_of_folded_segments_add_up() -> None:
    """They belong to the range in which they begin; outside of it to none."""
    ranges = ((90, 10, 30, 5), (91, 40, 50, 1))
    keys = ("segment_id", "from_offset", "until_offset", "matched")
    folds = Folds([FoldedRange(**dict(zip(keys, r, strict=True)), **PLACE) for r in ranges])
    store = [kept(1, rows=2), kept(2, rows=3), kept(3, rows=1)]
    outside = "1 rows of a segment that is not part of the result"
    assert dict(differences([], store, folds)) == {3: outside}
    assert dict(folds.differences()) == {91: "1 lines were counted, 0 rows are there"}


def test_what_differs_for_a_moment_is_no_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is committed between the two looks differs in one of them."""
    patience = SimpleNamespace(doubt_tries=3, doubt_pause_s=0)
    ctx: Any = SimpleNamespace(clock=ManualClock(), patience=patience)
    looks = iter([{1: "a", 2: "b"}, {2: "b", 3: "c"}, {2: "b", 3: "c"}])
    monkeypatch.setattr(module, "publish", lambda *_, **__: None)
    monkeypatch.setattr(module, "store_of", lambda *_: SimpleNamespace(view="x_rows"))
    monkeypatch.setattr(module, "_differences", lambda *_: next(looks))
    found = row_violations(ctx, None)  # type: ignore[arg-type]
    assert [(v.check, v.where, v.detail) for v in found] == [("rows", "segment 2 in x_rows", "b")]


def test_files_without_pyarrow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a host that has Tally without Spark."""
    monkeypatch.setitem(sys.modules, "tally.deliveries.file_content", None)
    database = Database(settings=MySQLSettings())
    with pytest.raises(PackageMissingError, match="first keeps its lines in files"):
        store_in(database, pipeline(delivery="files", files_url="/kept"), "a ledger")
    assert store_in(database, pipeline(delivery="rows"), "a ledger")
    assert store_in(database, pipeline(), "a ledger") is None


def test_sets_that_a_replay_replaced_meanwhile_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Set 2 was live when the ledger was asked first, and gone when the table of sets was."""
    looks = iter([[1, 2, 3], [1, 3, 4]])
    monkeypatch.setattr(module, "_live_sets", lambda *_: next(looks))
    store: Any = SimpleNamespace(known={1}.intersection)
    assert module._lost_sets(None, None, store) == {3}  # type: ignore[arg-type]
