"""Replays that meet others, or a result that is not what the ledger says; what is read is made up.

The commit takes the locks and writes the rows, so all that is raced for is real.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier
from typing import Any

import pytest

from tally.errors import DataLossError, MySQLUnavailableError, OvertakenError
from tally.ledger import batches, commits
from tally.model import Batch
from tally.mysql import Transaction, run_transaction
from tally.replay import preview_replay, request_replay
from tally.replay_request import BoundsAsked
from tests.minute.test_commit import claimed, commit, planned, result
from tests.world import World

pytestmark = pytest.mark.stack

EARLIER = "2017-07-30 13:00:00"


@pytest.fixture
def counted(world: World) -> World:
    """Three lines of one minute in each of two partitions."""
    return count_some(world)


def count_some(world: World) -> World:
    """Count three lines of one minute in each of two partitions."""
    batch = claimed(world, planned(world))
    assert commit(world, batch, result(batch))
    return world


def replay(world: World) -> Batch:
    """A claimed batch that is to replace all of it."""
    shown = preview_replay(world.settings, world.name, BoundsAsked())
    requested = request_replay(world.settings, shown, reason="a test")
    (batch_id,) = requested.batch_ids
    return run_transaction(world.settings.mysql, lambda tx: batches.claim(tx, batch_id, "test"))


def at_once(world: World, *batches: Batch) -> list[object]:
    """Commit batches in threads that start together; what became of each."""
    barrier = Barrier(len(batches))

    def work(batch: Batch) -> object:
        barrier.wait()
        try:
            return commit(world, batch, result(batch))
        except OvertakenError:
            return OvertakenError

    with ThreadPoolExecutor(len(batches)) as pool:
        return list(pool.map(work, batches))


def test_of_two_replays_that_commit_at_once_one_is_overtaken(counted: World) -> None:
    """Each was to replace the same segments; only one of them has."""
    outcomes = at_once(counted, replay(counted), replay(counted))
    assert sorted(map(str, outcomes)) == [str(OvertakenError), str(True)]
    assert counted.counts() == {"2017-07-30 14:09": 6}
    assert counted.audit().holds


def test_a_replay_and_a_minute_batch_that_commit_at_once_both_count(counted: World) -> None:
    """They add to, and take from, the same minute of the result."""
    again = replay(counted)
    outcomes = at_once(counted, again, claimed(counted, planned(counted)))
    assert outcomes == [True, True]
    assert counted.counts() == {"2017-07-30 14:09": 12}
    assert counted.offsets() == {0: (0, 6), 1: (0, 6)}
    assert counted.audit().holds


@pytest.mark.parametrize("step", ["take_over", "_take_from_result", "_insert_dead_letters"])
def test_a_replay_that_fails_half_way_leaves_the_old_counts(
    counted: World, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is cut when old segments are superseded, or old counts are taken away."""
    batch = replay(counted)
    do = getattr(commits, step)

    def cut_behind(tx: Transaction, *arguments: Any) -> None:
        do(tx, *arguments)
        own = tx.row("select connection_id() as id")
        assert own is not None
        with closing(counted.connect_as_root()) as root, root.cursor() as cursor:
            cursor.execute(f"kill {own['id']}")

    with monkeypatch.context() as patch:
        patch.setattr(commits, step, cut_behind)
        with pytest.raises(MySQLUnavailableError):
            commit(counted, batch, result(batch, minutes={EARLIER: 3}))
    assert counted.counts() == {"2017-07-30 14:09": 6}
    assert [s["state"] for s in counted.segments()] == ["live", "live", "planned", "planned"]
    assert counted.audit().holds
    assert commit(counted, batch, result(batch, minutes={EARLIER: 3}))
    assert counted.counts() == {"2017-07-30 13:00": 6}
    assert counted.audit().holds


def test_a_replay_that_would_leave_a_negative_count_is_refused_whole(counted: World) -> None:
    """Somebody has lowered the result by hand: it holds less than is to be taken from it."""
    batch = replay(counted)
    counted.execute(f"update `{counted.name}` set log_count = 5")
    with pytest.raises(DataLossError, match="has less in 1 minutes"):
        commit(counted, batch, result(batch, minutes={EARLIER: 3}))
    assert counted.counts() == {"2017-07-30 14:09": 5}
    assert [s["state"] for s in counted.segments()] == ["live", "live", "planned", "planned"]
    counted.execute(f"update `{counted.name}` set log_count = 6")
    assert commit(counted, batch, result(batch, minutes={EARLIER: 3}))
    assert counted.counts() == {"2017-07-30 13:00": 6}
    assert counted.audit().holds
