"""Planners, runners and operators on one pipeline: at once, stopped, and under a jumping clock."""

import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from tally.errors import ConfigError, DataLossError, FencedError, RecordsMissingError
from tally.ledger import positions
from tally.ledger.decisions import Adoption, adopt_topic, find_losses
from tally.model import Batch
from tally.mysql.transactions import Transaction
from tally.pipeline.plan import Planned
from tally.pipeline.prune import prune
from tally.planning.blocks import BlockReason
from tally.testing.clock import ManualClock
from tally.testing.kafka import DisturbedKafka
from tally.testing.statements import at_statement
from tests.minute.steps import (
    AT,
    ERROR,
    abandoned,
    accept,
    audited,
    losses,
    planned_id,
    ranges,
    reasons,
    set_position,
)
from tests.minute.test_commit import assert_untouched, claimed, commit, planned, result
from tests.minute.test_losses import leave_a_hole
from tests.servers import PROJECT
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S, World

pytestmark = pytest.mark.stack


def test_a_plan_waits_for_the_commit_that_is_under_way(own_world: World) -> None:
    """Planned while its batch commits, the next batch begins where that one ended."""
    world = own_world  # on other servers the statements of other tests wait, too
    world.produce([ERROR] * 3)
    with commit_under_way(world) as commit_now, ThreadPoolExecutor(1) as pool:
        world.produce([ERROR] * 2)
        planner = pool.submit(world.plan)
        wait_until(world.waiting_statements, pause_s=LOCK_LIST_S)
        assert not planner.done()
        commit_now.set()
        planned = planner.result(60)
    assert ranges(planned) == [(0, 3, 5)]
    assert world.run(planned.batch.batch_id).committed
    assert world.counts() == {AT: 5}


@contextmanager
def commit_under_way(world: World) -> Iterator[threading.Event]:
    """A run that has written its counts and ends its transaction when the event is set."""
    batch_id = planned_id(world)
    inside, commit_now = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        assert commit_now.wait(120)

    listen = at_statement("^update batch set state = 'committed'", hold)
    held = world.through(database=replace(world.database, listen=listen))
    with ThreadPoolExecutor(1) as pool:
        runner = pool.submit(held.run, batch_id)
        try:
            assert inside.wait(60)
            yield commit_now
        finally:
            commit_now.set()
        assert runner.result(60).committed


def test_a_batch_that_can_never_commit_is_abandoned(world: World) -> None:
    """The batch's first offset is not the committed one: the next plan starts at the latter."""
    world.produce([ERROR] * 5)
    world.plan()
    set_position(world, 2, start=2)
    planned = world.plan()
    assert "the committed offset is 2" in planned.abandoned[0]
    assert world.run(planned.batch.batch_id).committed
    assert audited(world) == {AT: 3}


def test_a_topic_that_vanishes_under_a_plan_stops_no_other(world: World) -> None:
    """The open batch is abandoned, the other topic is planned and counted."""
    other = f"{world.topic}-b"
    world.create_topic(1, other)
    world.configure(topics=[world.topic, other])
    world.produce([ERROR] * 3)
    world.produce([ERROR] * 2, topic=other)
    world.plan()
    world.delete_topic(other)
    planned = world.plan()
    assert "no such topic any more" in planned.abandoned[0]
    assert reasons(planned) == [(None, BlockReason.TOPIC_MISSING)]
    assert world.run(planned.batch.batch_id).committed
    assert world.counts() == {AT: 3}


def test_records_that_expire_behind_a_read_are_counted(world: World) -> None:
    """Kafka may lose records after a complete read; no plan abandons the batch."""
    world.produce([ERROR] * 5)
    batch_id = planned_id(world)
    plans: list[Planned] = []
    expiring = expire_behind_the_read(world, 4, lambda: plans.append(world.plan()))
    assert expiring.run(batch_id).committed
    assert plans[0].resumed
    assert plans[0].blocks == ()
    assert audited(world) == {AT: 5}


def test_sparse_records_that_expire_behind_a_read_are_not_believed(world: World) -> None:
    """Offsets may be missing, so nothing proves that the deleted records were read."""
    world.configure(offsets="sparse")
    world.produce([ERROR] * 5)
    batch_id = planned_id(world)
    with pytest.raises(DataLossError, match="first offset is now 4"):
        expire_behind_the_read(world, 4).run(batch_id)
    assert world.counts() == {}


def test_a_hole_whose_records_expire_behind_a_read_is_not_believed(world: World) -> None:
    """A range with an accepted hole is checked as a sparse range is."""
    leave_a_hole(world)
    world.produce([ERROR] * 2)
    with pytest.raises(RecordsMissingError):
        world.minute()
    world.plan()
    accept(world)
    batch_id = planned_id(world)
    with pytest.raises(DataLossError, match="first offset is now 4"):
        expire_behind_the_read(world, 4).run(batch_id)
    assert world.counts() == {}


def expire_behind_the_read(
    world: World, before: int, then: Callable[[], None] = lambda: None
) -> World:
    """The same pipeline; retention deletes records when a run has read everything.

    A run asks Kafka for the first time after the read.
    """

    def expire() -> None:
        world.delete_records(0, before)
        then()

    return world.through(kafka=DisturbedKafka(world.context().kafka, before=expire))


def test_a_failed_attempt_lets_the_next_plan_judge(world: World) -> None:
    """Records are gone before the read: the run fails, the next plan abandons the batch at once."""
    world.produce([ERROR] * 5, 0)
    world.produce([ERROR] * 2, 1)
    batch_id = planned_id(world)
    world.delete_records(0, 3)
    with pytest.raises(DataLossError):
        world.run(batch_id)
    planned = world.plan()
    assert "first offset is now 3" in planned.abandoned[0]
    assert reasons(planned) == [(0, BlockReason.RECORDS_LOST)]
    assert world.run(planned.batch.batch_id).committed
    assert world.counts() == {AT: 2}


def adopt(world: World, topic_id: str, cluster_id: str, starts: dict[int, int]) -> dict[int, int]:
    """What ``tally topics adopt`` does in the ledger."""
    adoption = Adoption(topic=world.topic, cluster_id=cluster_id, topic_id=topic_id, starts=starts)

    def decide(tx: Transaction) -> dict[int, int]:
        positions.lock_pipeline(tx, world.name, world.name)
        return adopt_topic(tx, world.name, adoption, by="me", reason="a test")

    return world.database.run(decide)


def test_going_back_to_an_earlier_cluster_counts_nothing_twice(world: World) -> None:
    """Fail-over and fail-back: the first generation resumes at its committed offsets."""
    world.produce([ERROR] * 5)
    assert world.minute() is not None
    (generation,) = world.rows("select * from topic_incarnation where pipeline = %s", (world.name,))
    adopt(world, generation["topic_id"], "another cluster", {0: 0, 1: 0})
    assert world.plan().blocks[0].reason is BlockReason.CLUSTER_CHANGED
    back = adopt(world, generation["topic_id"], generation["cluster_id"], {0: 0, 1: 0})
    assert back == {0: 5, 1: 0}
    world.produce([ERROR] * 2)
    assert world.minute() is not None
    assert audited(world) == {AT: 7}


def test_adopting_records_what_was_planned_and_never_counted(world: World) -> None:
    """It is lost with the old topic, and an attempt that has read it is fenced."""
    world.produce([ERROR] * 5)
    batch = claimed(world, world.plan().batch)
    adopt(world, "another generation", "a cluster", {0: 0, 1: 0})
    assert losses(world) == [(0, 0, 5, "expired", "accepted")]
    with world.database.transaction(read_only=True) as tx:
        (loss,) = find_losses(tx, world.name)
    assert (loss.decided_by, loss.reason) == ("me", "a test")
    assert world.audit().holds
    with pytest.raises(FencedError):
        commit(world, batch, result(batch))


def test_adopting_waits_for_the_commit_that_is_under_way(own_world: World) -> None:
    """What the commit counts is not recorded as lost too."""
    world = own_world  # as above
    world.produce([ERROR] * 5)
    with commit_under_way(world) as commit_now, ThreadPoolExecutor(1) as pool:
        adopter = pool.submit(adopt, world, "another generation", "a cluster", {0: 0, 1: 0})
        wait_until(world.waiting_statements, pause_s=LOCK_LIST_S)
        assert not adopter.done()
        commit_now.set()
        assert adopter.result(60) == {0: 0, 1: 0}
    assert losses(world) == []
    assert audited(world) == {AT: 5}


def test_what_prune_forgets_is_still_lost_by_an_adoption(world: World) -> None:
    """An abandoned batch shows what Kafka once held, until its offsets are counted."""
    world.produce([ERROR] * 5)
    batch_id = planned_id(world)
    abandoned(world, batch_id)
    prune(world.context(), world.name, timedelta(), lambda *_: None)
    adopt(world, "another generation", "a cluster", {0: 0, 1: 0})
    assert losses(world) == [(0, 0, 5, "expired", "accepted")]
    assert world.audit().holds


def test_a_result_table_changed_between_plan_and_run_is_refused(world: World) -> None:
    """Counts never land in a table that is not the pipeline's; the audit names the mistake."""
    other = f"{world.name}_b"
    world.produce([ERROR] * 3)
    batch_id = planned_id(world)
    world.execute(f"create table `{other}` like `{world.name}`")
    world.configure(result_table=other)
    for refused in (lambda: world.run(batch_id), world.plan):
        with pytest.raises(ConfigError, match="has counted into"):
            refused()
    assert world.rows(f"select * from `{other}`") == []
    assert not world.audit().holds
    world.configure(result_table=world.name)
    assert world.run(batch_id).committed
    assert audited(world) == {AT: 3}


HOUR = timedelta(hours=1)
DECADE = timedelta(days=3653)
NONE = timedelta()


@pytest.fixture
def clock() -> ManualClock:
    """Tally's clock, which a test sets and which otherwise does not advance."""
    return ManualClock()


@pytest.fixture
def clocked(world: World, clock: ManualClock) -> World:
    """A pipeline of the test's own, with that clock."""
    return world.through(database=replace(world.database, clock=clock))


@pytest.mark.parametrize(
    "jumps",
    [
        (NONE, HOUR, DECADE),
        (NONE, -HOUR, -DECADE),
        (NONE, DECADE, NONE),
        (DECADE, -DECADE, DECADE),
    ],
    ids=["forwards", "backwards", "there and back", "to and fro"],
)
def test_a_clock_that_jumps_between_plan_claim_and_commit_loses_and_doubles_nothing(
    clocked: World, clock: ManualClock, jumps: tuple[timedelta, timedelta, timedelta]
) -> None:
    """Two minutes are counted once each; a concurrent planner resumes the batch."""
    at_plan, at_claim, at_commit = jumps
    begun = clock.now()

    def jump(ahead: timedelta) -> None:
        clock.jump(begun + ahead - clock.now())

    for number in (1, 2):
        jump(at_plan)
        batch = planned(clocked)
        jump(at_claim)
        batch = claimed(clocked, batch)
        jump(at_commit)
        again = clocked.plan()
        assert again.resumed
        assert again.batch == batch
        assert commit(clocked, batch, result(batch))
        assert not commit(clocked, batch, result(batch))
        assert clocked.counts() == {AT: 6 * number}
        assert clocked.offsets() == {0: (0, 3 * number), 1: (0, 3 * number)}
    assert clocked.plan().batch is None
    assert clocked.audit().holds


@pytest.mark.parametrize("jump", [NONE, -HOUR, HOUR])
def test_the_newer_of_two_attempts_is_told_by_its_number_and_not_by_the_clock(
    clocked: World, clock: ManualClock, jump: timedelta
) -> None:
    """Also when the clock dates the newer attempt before the older one, or both alike."""
    batch = planned(clocked)
    older = claimed(clocked, batch)
    clock.jump(jump)
    newer = claimed(clocked, batch)
    with pytest.raises(FencedError, match="attempt 2 has replaced attempt 1"):
        commit(clocked, older, result(older))
    assert_untouched(clocked)
    assert commit(clocked, newer, result(newer))
    assert clocked.counts() == {AT: 6}


def test_a_clock_that_jumps_forwards_under_an_attempt_lets_it_count_nothing_twice(
    clocked: World, clock: ManualClock
) -> None:
    """The attempt seems dead and its records are gone: its batch is abandoned, it is fenced."""
    batch = claimed(clocked, planned(clocked))
    clocked.delete_records(0, 2)
    clock.jump(DECADE)
    replanned = clocked.plan()
    assert replanned.abandoned
    assert reasons(replanned) == [(0, BlockReason.RECORDS_LOST)]
    with pytest.raises(FencedError, match="abandoned"):
        commit(clocked, batch, result(batch))
    assert clocked.counts() == {}
    assert replanned.batch is not None
    healthy = claimed(clocked, replanned.batch)
    assert commit(clocked, healthy, result(healthy))
    assert clocked.counts() == {AT: 3}
    assert clocked.offsets() == {0: (0, 0), 1: (0, 3)}


def test_a_clock_that_jumps_backwards_under_an_attempt_takes_nothing_from_it(
    clocked: World, clock: ManualClock
) -> None:
    """It has read its records before Kafka lost them, so no plan abandons its batch."""
    batch = claimed(clocked, planned(clocked))
    clocked.delete_records(0, 2)
    clock.jump(-DECADE)
    assert clocked.plan().resumed
    assert commit(clocked, batch, result(batch))
    assert audited(clocked) == {AT: 6}


class Sleeper:
    """A worker that stops before its commit; its parent process was killed."""

    def __init__(self, batch: Batch, folder: Path) -> None:
        self._outcome = folder / "outcome"
        command = [sys.executable, "-m", "tests.minute.sleeper", str(batch.batch_id)]
        own = shlex.join([*command, str(self._outcome)])
        parent = subprocess.Popen(
            ["/bin/sh", "-c", f"{own} & echo $!; wait"],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert parent.stdout is not None
        self.process = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        parent.stdout.close()
        wait_until(lambda: self.process.status() == psutil.STATUS_STOPPED)

    def wake(self) -> str:
        """Resume it; returns the outcome of its commit."""
        self.process.resume()
        self.process.wait()
        return self._outcome.read_text(encoding="utf-8")


@pytest.fixture
def batch(world: World) -> Batch:
    """A planned batch."""
    return planned(world)


@pytest.fixture
def sleeper(batch: Batch, tmp_path: Path) -> Iterator[Sleeper]:
    """A worker that has claimed and read the batch, and sleeps."""
    sleeper = Sleeper(batch, tmp_path)
    yield sleeper
    with suppress(psutil.NoSuchProcess):
        sleeper.process.kill()


@pytest.mark.parametrize("successors", [0, 3])
def test_a_stopped_worker_changes_nothing_when_it_wakes_after_its_successors(
    world: World, batch: Batch, sleeper: Sleeper, successors: int
) -> None:
    """Another attempt owns its batch, or it was committed and later batches too."""
    newer = claimed(world, batch)
    for _ in range(successors):
        assert commit(world, newer, result(newer))
        newer = claimed(world, planned(world))
    before = world.counts(), world.offsets()
    assert sleeper.wake() == ("found it done" if successors else "fenced")
    assert (world.counts(), world.offsets()) == before
    assert commit(world, newer, result(newer))
    assert audited(world) == {AT: 6 * (successors + 1)}


@pytest.mark.parametrize("survives", [True, False])
def test_a_driver_that_outlives_its_killed_worker_counts_once_with_the_retry(
    world: World, batch: Batch, sleeper: Sleeper, survives: bool
) -> None:
    """SIGKILL ends only the worker, and its driver commits later; or it ends both of them."""
    if survives:
        assert sleeper.wake() == "committed"
    else:
        sleeper.process.kill()
    assert world.run(batch.batch_id).committed != survives
    assert audited(world) == {AT: 6}
    assert world.offsets() == {0: (0, 3), 1: (0, 3)}
