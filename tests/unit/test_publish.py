"""Which sets of rows are shown, and what the audit says of them; without a server."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tally.config.pipeline import Pipeline
from tally.config.servers import MySQLSettings
from tally.deliveries.choice import store_in
from tally.deliveries.set_store import KeptMinute, WaitingSet
from tally.errors import PackageMissingError
from tally.ledger.row_sets import CountedMinute, FoldedRange, Standing
from tally.model import SegmentState
from tally.mysql.transactions import Database
from tally.pipeline import publish as module
from tally.pipeline.publish import Folds, Verdict, differences, row_violations, verdict
from tally.testing.clock import ManualClock

MINUTE = "2017-07-30 14:09:00"
NEXT = "2017-07-30 14:10:00"


def test_the_ledger_decides_what_becomes_of_a_set() -> None:
    """Set 7 of segment 1, of attempt 1 or 2."""
    for attempt, state, row_set, told in (
        (2, "planned", None, Verdict.WAITS),
        (1, "planned", None, Verdict.DROPPED),
        (2, "abandoned", None, Verdict.DROPPED),
        (2, "live", 7, Verdict.LIVE),
        (2, "live", 8, Verdict.DROPPED),
        (2, "superseded", 7, Verdict.DROPPED),
        (2, "superseded", 8, Verdict.DROPPED),
    ):
        found = Standing(segment_id=1, state=SegmentState(state), row_set=row_set, attempt=2)
        waiting = WaitingSet(set_id=7, segment_id=1, attempt=attempt)
        assert verdict(waiting, found) is told, (attempt, state, row_set)
        assert verdict(waiting, None) is Verdict.DROPPED


def counted(segment_id: int, *minutes: tuple[str, int]) -> list[CountedMinute]:
    """What a segment has counted; its set has ten times its number."""
    ids = {
        "segment_id": segment_id,
        "row_set": segment_id * 10,
        "matched": sum(dict(minutes).values()),
    }
    return [CountedMinute(**ids, log_time=m, lines=n) for m, n in minutes or [(None, 0)]]


PLACE = {"cluster_id": "c", "topic_id": "t", "partition_id": 0}


def kept(segment_id: int, *minutes: tuple[str, int], set_id: int = 0) -> list[KeptMinute]:
    """The rows of a set of a segment, of the ten offsets that its number says."""
    ids = {"segment_id": segment_id, "set_id": set_id or segment_id * 10}
    return [
        KeptMinute(**ids, **PLACE, from_offset=segment_id * 10, log_time=m, rows=n)
        for m, n in minutes or [(None, 0)]
    ]


TWO, NO_PART = (MINUTE, 2), "rows of a segment that is not part of the result"
DIFFERENT: list[tuple[list[CountedMinute], list[KeptMinute], dict[int, str]]] = [
    ([], [], {}),
    (counted(1, TWO, (NEXT, 1)) + counted(3), kept(1, TWO, (NEXT, 1)) + kept(3), {}),
    (counted(1, TWO), [], {1: "readers do not see its set 10"}),
    (counted(1, TWO), kept(1, TWO, set_id=9), {1: "readers do not see its set 10"}),
    (counted(1, TWO), kept(7, TWO, set_id=10), {1: "its set 10 is that of segment 7"}),
    (
        counted(2, TWO),
        kept(1, (MINUTE, 4)) + kept(2, (MINUTE, 3)),
        {1: f"4 {NO_PART}", 2: "2 lines were counted, 3 rows are there"},
    ),
    (
        counted(1, TWO) + counted(2, (NEXT, 1)),
        kept(1, (MINUTE, 1), (NEXT, 1)) + kept(2, (NEXT, 1)),
        {1: f"{MINUTE}: 2 lines, 1 rows; {NEXT}: 0 lines, 1 rows"},
    ),
]


def test_each_segment_is_compared_with_its_rows() -> None:
    """Segment by segment and minute by minute, whatever is missing on either side."""
    for ledger, store, found in DIFFERENT:
        assert dict(differences(ledger, store, Folds([]))) == found


def test_rows_of_folded_segments_add_up() -> None:
    """They belong to the range in which they begin; outside of it to none."""
    folds = Folds(
        [
            FoldedRange(segment_id=90, matched=5, **PLACE, from_offset=10, until_offset=30),
            FoldedRange(segment_id=91, matched=1, **PLACE, from_offset=40, until_offset=50),
        ]
    )
    store = kept(1, (MINUTE, 2)) + kept(2, (MINUTE, 2), (NEXT, 1)) + kept(3, (MINUTE, 1))
    assert dict(differences([], store, folds)) == {3: f"1 {NO_PART}"}
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


def test_files_without_pyarrow_are_refused_with_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a host that has Tally without Spark."""
    monkeypatch.setitem(sys.modules, "tally.deliveries.file_content", None)
    keys = {"topics": ["a"], "delivery": "files", "files_url": "/kept"}
    pipeline = Pipeline.model_validate({"name": "first", **keys})
    database = Database(settings=MySQLSettings())
    with pytest.raises(PackageMissingError, match="first keeps its lines in files"):
        store_in(database, pipeline, "a ledger")
    assert store_in(database, pipeline.model_copy(update={"delivery": "rows"}), "a ledger")
    assert store_in(database, pipeline.model_copy(update={"delivery": "batch"}), "l") is None
