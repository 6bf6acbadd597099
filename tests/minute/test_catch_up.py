"""Batches of a backlog counted back to back, within one run."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tally.counting.outcomes import Ran, batch_outcome
from tally.counting.run import run_and_catch_up
from tally.ledger.batches import Requester
from tests.fakes import ManualClock
from tests.minute.steps import AT, ERROR, audited
from tests.world import World

pytestmark = pytest.mark.stack

HOUR = timedelta(hours=1)


@pytest.fixture
def backlog(world: World) -> World:
    """A pipeline of ten offsets at once, with 35 lines to count in one of two partitions."""
    world.configure(max_records_per_partition=10)
    world.produce([ERROR] * 35, 0)
    world.produce([ERROR] * 3, 1)
    return world


def planned(world: World) -> int:
    airflow = Requester(name="airflow:p", version="1", run_id="scheduled__1")
    return world.through(requester=airflow).planned().batch_id


def test_a_backlog_is_counted_within_one_run(backlog: World) -> None:
    """Each batch is planned for the run, and committed by itself; one that is not full is last."""
    ctx = backlog.context(backlog.reader)
    first = planned(backlog)
    done: list[Ran] = []
    for ran in run_and_catch_up(ctx, [first], HOUR):
        done.append(ran)
        if len(done) == 4:  # it was not full: what comes now belongs to the next minute
            backlog.produce([ERROR])
    assert [batch.offsets for batch in done] == [13, 10, 10, 5]
    assert audited(backlog) == {AT: 38}
    assert backlog.offsets() == {0: (0, 35), 1: (0, 3)}
    rows = backlog.batches()
    assert {(r["requested_by"], r["run_id"], r["state"]) for r in rows} == {
        ("airflow:p", "scheduled__1", "committed")
    }
    assert all(r["claimed_by"] == ctx.requester.name for r in rows)
    outcome = batch_outcome(ctx, [first])
    later = tuple(ran.batch_id for ran in done[1:])
    assert (outcome.standing, outcome.followed_by) == ((first,), later)
    assert (outcome.total.records, outcome.total.matched, len(outcome.ranges)) == (38, 38, 5)


def test_no_batch_is_begun_that_would_end_too_late_or_is_of_somebody_else(backlog: World) -> None:
    """The rest waits for the next run; a run that is repeated does not go on either."""
    ctx = backlog.context(backlog.reader)
    first = planned(backlog)
    assert len(list(run_and_catch_up(ctx, [first], timedelta(0)))) == 1
    (again,) = run_and_catch_up(ctx, [first], HOUR)
    assert again.committed_before
    assert backlog.offsets()[0] == (0, 10)
    second = planned(backlog)
    clock = ManualClock()
    slow = backlog.context(backlog.reader, database=replace(backlog.database, clock=clock))
    done: list[Ran] = []
    for ran in run_and_catch_up(slow, [second], HOUR):
        done.append(ran)
        clock.sleep(2000)
    assert [batch.offsets for batch in done] == [10, 10]

    backlog.produce([ERROR] * 30)
    third = planned(backlog)
    theirs: list[int] = []
    for ran in run_and_catch_up(ctx, [third], HOUR):
        assert (ran.batch_id, ran.offsets) == (third, 10)
        theirs.append(planned(backlog))
    (batch,) = [b for b in backlog.batches() if b["batch_id"] == theirs[0]]
    assert (batch["state"], batch["attempt"]) == ("planned", 0)
    assert backlog.audit().holds
