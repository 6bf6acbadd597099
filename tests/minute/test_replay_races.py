"""Conflicts of replays, a result that differs from the ledger, and ranges that touch.

Only the counts are made up: the commit takes real locks and writes real rows.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Event

import pytest

from tally.context import Context
from tally.counting import run
from tally.counting.batch import Outcomes, run_planned
from tally.counting.replan import replan_batch
from tally.errors import DataLossError, MySQLUnavailableError, OutcomeUnknownError, OvertakenError
from tally.ledger import batches
from tally.ledger.positions import first_whole, tiles_of
from tally.ledger.replays import standing_for
from tally.maintenance.prune import prune
from tally.model import Batch, OffsetRange
from tally.planning.replay_request import RangesAsked, Request
from tally.reading.counts import counts
from tally.replay.run import replay_outcome, run_replay
from tests.minute.steps import AT, ERROR, at_once, audited, count, disturbed
from tests.minute.test_commit import claimed, commit, count_one, cut_at, planned, result
from tests.minute.test_replay import add_loss, asked
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S, World

pytestmark = pytest.mark.stack

EARLIER = "2017-07-30 13:00:00"

BEHIND = {
    "the old segments are superseded": "^insert into `segment_count`",
    "the old counts are taken away": "^delete d from dead_letter",
    "the old dead letters are gone": "^update segment s join json_table",
}
"""A step of a replay's commit, and the statement after it."""


@pytest.fixture
def counted(world: World) -> World:
    count_one(world)
    return world


def replay(world: World, what: Request | None = None) -> Batch:
    """A claimed replay batch of all counted ranges, or of the given ones."""
    (batch_id,) = world.ask_replay(what).batch_ids
    (batch,) = world.database.run(lambda tx: batches.claim(tx, [batch_id], "test"))
    return batch


def commit_at_once(world: World, *batches: Batch) -> list[object]:
    def work(batch: Batch) -> object:
        try:
            return commit(world, batch, result(batch))
        except OvertakenError:
            return OvertakenError

    return at_once(*(partial(work, batch) for batch in batches))


def test_of_two_replays_that_commit_at_once_one_is_overtaken(counted: World) -> None:
    outcomes = commit_at_once(counted, replay(counted), replay(counted, asked(counted, (0, 3))))
    assert sorted(map(str, outcomes)) == [str(OvertakenError), str(True)]
    assert audited(counted) == {AT: 6}


def test_a_replay_and_a_minute_batch_that_commit_at_once_both_count(counted: World) -> None:
    again = replay(counted)
    outcomes = commit_at_once(counted, again, claimed(counted, planned(counted)))
    assert outcomes == [True, True]
    assert audited(counted) == {AT: 12}
    assert counted.offsets() == {0: (0, 6), 1: (0, 6)}


@pytest.mark.parametrize(("conflicts", "is_error"), [(5, False), (6, True)])
def test_each_batch_of_a_replay_is_replanned_after_five_conflicts_and_not_after_six(
    counted: World, monkeypatch: pytest.MonkeyPatch, conflicts: int, is_error: bool
) -> None:
    count_one(counted)
    counted.configure(max_records_per_partition=3)
    batch_ids = counted.ask_replay().batch_ids
    assert len(batch_ids) == 2
    left = {True: conflicts, False: conflicts}

    def overtaken(ctx: Context, batch_ids: list[int]) -> Outcomes:
        (batch_id,) = batch_ids
        batch = counted.database.run(lambda tx: batches.find_batch(tx, batch_id))
        is_first = batch.segments[0].range.from_offset == 0
        if left[is_first]:
            left[is_first] -= 1
            raise OvertakenError("another replay was first", next_step="wait")
        return run_planned(ctx, batch_ids)

    monkeypatch.setattr(run, "run_planned", overtaken)
    ending = pytest.raises(OvertakenError, match="was first") if is_error else nullcontext()
    with ending:
        assert len(list(run.run_batches(counted.context(counted.reader), batch_ids))) == 2
    assert left == dict.fromkeys(left, 0)
    assert audited(counted) == {AT: 12}


def test_two_replays_that_share_uncounted_offsets_beside_others_count_them_once(
    own_world: World,
) -> None:
    """They supersede different segments, so only the lock of the topic's row makes one wait."""
    world = own_world  # on other servers the statements of other tests wait, too
    skip(world, 4)
    count_one(world)
    count_one(world)
    first = replay(world, both(world, (0, 3), (0, 3)))
    second = replay(world, both(world, (1, 4), (3, 6)))
    inside, both_inside = Event(), Event()

    def wait_for_the_other() -> None:
        if inside.is_set():
            both_inside.set()
        inside.set()
        # The other one waits for our lock.
        wait_until(lambda: both_inside.is_set() or world.waiting_statements(), pause_s=LOCK_LIST_S)

    behind = BEHIND["the old segments are superseded"]
    patient = disturbed(world, behind, wait_for_the_other, times=2)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(commit, patient, first, result(first))
        assert inside.wait(60)
        with pytest.raises(OvertakenError, match=r"\[1, 4\) was counted by segment"):
            commit(patient, second, result(second))
        assert committed.result(60)
    assert audited(world) == {AT: 15}


def test_a_backfill_sees_the_last_live_segment_before_its_end(world: World) -> None:
    """An earlier segment ends before the range; the one after it overlaps."""
    skip(world, 10)
    count_one(world)
    early = replay(world, asked(world, (0, 3)))
    assert commit(world, early, result(early))
    slow = replay(world, asked(world, (6, 9)))
    quick = replay(world, asked(world, (5, 8)))
    assert commit(world, quick, result(quick))
    with pytest.raises(OvertakenError, match=r"\[6, 9\) was counted by segment .*\[5, 8\)"):
        commit(world, slow, result(slow))
    assert audited(world) == {AT: 12}


def skip(world: World, records: int) -> None:
    world.produce([ERROR] * records)
    world.configure(start="latest")
    assert world.plan().batches == ()


def both(world: World, first: tuple[int, int], second: tuple[int, int]) -> RangesAsked:
    parts = asked(world, first), asked(world, second, partition=1)
    return RangesAsked(ranges=tuple(r for part in parts for r in part.ranges))


@pytest.mark.parametrize("statement", BEHIND.values(), ids=BEHIND)
def test_a_replay_that_fails_half_way_leaves_the_old_counts(counted: World, statement: str) -> None:
    """Its connection is cut while it supersedes segments or subtracts their counts."""
    batch = replay(counted)
    with pytest.raises((MySQLUnavailableError, OutcomeUnknownError)):
        commit(cut_at(counted, statement), batch, result(batch, minutes={EARLIER: 3}))
    assert audited(counted) == {AT: 6}
    assert [s["state"] for s in counted.segments()] == ["live", "live", "planned", "planned"]
    assert commit(counted, batch, result(batch, minutes={EARLIER: 3}))
    assert audited(counted) == {"2017-07-30 13:00": 6}


def test_a_replay_that_would_leave_a_negative_count_is_refused_whole(counted: World) -> None:
    """The result was lowered by hand and holds less than is to be subtracted."""
    batch = replay(counted)
    counted.execute(f"update `{counted.name}` set log_count = 5")
    with pytest.raises(DataLossError, match="has less in 1 rows"):
        commit(counted, batch, result(batch, minutes={EARLIER: 3}))
    assert counted.counts() == {AT: 5}
    assert [s["state"] for s in counted.segments()] == ["live", "live", "planned", "planned"]
    counted.execute(f"update `{counted.name}` set log_count = 6")
    assert commit(counted, batch, result(batch, minutes={EARLIER: 3}))
    assert counted.counts() == {"2017-07-30 13:00": 6}
    assert counted.audit().holds


@pytest.fixture
def thirds(world: World) -> World:
    """Three segments that touch: [0, 10), [10, 20) and [20, 30) of partition 0."""
    count(world, *[[ERROR] * 10] * 3)
    return world


def test_a_range_has_the_tiles_that_overlap_it(thirds: World) -> None:
    """Segments beside it are not, and no loss; one with an accepted hole is replaced alone."""
    add_loss(thirds, 1, 0, 30, "expired")
    generation = thirds.segments()[0]["incarnation_id"]
    middle = OffsetRange(partition=thirds.partition(0), from_offset=10, until_offset=20)
    with thirds.database.transaction(read_only=True) as tx:
        (tile,) = tiles_of(tx, generation, middle)
        assert tile.range == middle
        assert tiles_of(tx, generation, replace(middle, partition=thirds.partition(1))) == []
        assert first_whole(tx, generation, thirds.partition(0), 10) == 10
    add_loss(thirds, 0, 10, 12, "missing")
    add_loss(thirds, 0, 18, 20, "missing")
    with thirds.database.transaction(read_only=True) as tx:
        tiles = tiles_of(tx, generation, replace(middle, from_offset=0, until_offset=30))
    assert [tile.alone for tile in tiles] == [False, True, False]


def test_a_batch_that_was_replanned_is_counted_by_its_own_replacement(thirds: World) -> None:
    """Later batches of the same replay that count the ranges beside it are other tasks'."""
    thirds.configure(max_records_per_partition=10)
    thirds.ask_replay()
    first, second, third = (b["batch_id"] for b in thirds.batches() if b["state"] == "planned")
    (instead_of_first,) = replan_batch(thirds.context(), first)
    (instead_of_second,) = replan_batch(thirds.context(), second)
    with thirds.database.transaction(read_only=True) as tx:
        assert standing_for(tx, first) == [instead_of_first]
        assert standing_for(tx, second) == [instead_of_second]
        assert standing_for(tx, third) == [third]


def test_counts_have_the_rules_by_which_they_were_counted(world: World) -> None:
    """Not those of a replay that was committed while they were read."""
    count(world, [ERROR] * 3, ["2017-07-30 14:09:08 WARN x"])
    world.configure(levels=["WARN"])
    replay_id = world.ask_replay().replay_id

    def replayed() -> None:
        list(run_replay(world.context(world.reader), replay_id))

    beside = disturbed(world, "format_fingerprint", replayed)
    (row,) = counts(beside.context(), world.name).minutes
    assert (row.log_count, row.rule) == (3, "other")
    assert world.counts() == {AT: 1}


def test_the_changes_of_a_replay_are_known_whole_or_not_at_all(world: World) -> None:
    """A prune while they are added up takes none of them away."""
    count(world, [ERROR] * 3, ["2017-07-30 14:09:08 WARN x"])
    world.configure(levels=["WARN"])
    replay_id = world.ask_replay().replay_id
    list(run_replay(world.context(world.reader), replay_id))
    before = replay_outcome(world.context(), replay_id)
    world.delete_records(0, 4)
    beside = disturbed(world, "greatest", lambda: prune(world.context(), world.name, timedelta()))
    assert replay_outcome(beside.context(), replay_id).changes == before.changes
    assert replay_outcome(world.context(), replay_id).changes is None
