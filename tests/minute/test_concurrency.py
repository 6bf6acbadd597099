"""Planners, runners and operators on one pipeline: at once, stopped, and under a jumping clock."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from threading import Event

import pytest

from tally.counting.outcomes import Ran
from tally.counting.plan import Planned
from tally.errors import (
    DataLossError,
    FencedError,
    RecordsMissingError,
    TransactionRetryError,
)
from tally.ledger import positions
from tally.ledger.decisions import AdoptionView, adopt_topic, find_losses, starts_of
from tally.maintenance.prune import prune
from tally.model import KafkaSnapshot
from tally.mysql.transactions import Transaction
from tally.planning.blocks import BlockReason
from tests.fakes import DisturbedKafka, ManualClock
from tests.minute import steps
from tests.minute.steps import AT, AT_LATER, ERROR, LATER
from tests.minute.test_commit import assert_untouched, claimed, commit, planned, result
from tests.minute.test_losses import leave_a_hole
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S, World

pytestmark = pytest.mark.stack


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that is a deadlock's victim is not run again, so that it shows."""
    monkeypatch.setattr("tally.mysql.transactions.TRANSACTION_TRIES", 1)


@pytest.mark.usefixtures("once")
def test_a_plan_waits_for_the_commit_that_is_under_way(own_world: World) -> None:
    world = own_world  # on other servers the statements of other tests wait, too
    world.produce([ERROR] * 3)
    with commit_under_way(world) as (committed, commit_now), ThreadPoolExecutor(1) as pool:
        world.produce([ERROR] * 2)
        planner = pool.submit(world.plan)
        wait_until(world.waiting_statements, pause_s=LOCK_LIST_S)
        assert not planner.done()
        commit_now.set()
        planned = planner.result(60)
        assert committed.result(60).committed
    assert steps.ranges(planned) == [(0, 3, 5)]
    assert world.run(planned.batch_ids[0]).committed
    assert world.counts() == {AT: 5}


def commit_under_way(world: World) -> AbstractContextManager[tuple[Future[Ran], Event]]:
    """A run that has written its counts and ends its transaction when the event is set."""
    batch_id = world.planned().batch_id
    statement = "^update batch set state = 'committed'"
    return steps.held(world, statement, lambda held: held.run(batch_id))


def test_records_that_expire_behind_a_read_are_counted(world: World) -> None:
    """Kafka may lose records after a complete read; no plan abandons the batch."""
    batch_id = world.planned([ERROR] * 5).batch_id
    plans: list[Planned] = []

    def expire() -> None:
        world.delete_records(0, 4)
        plans.append(world.plan())

    assert steps.behind_the_read(world, expire).run(batch_id).committed
    assert plans[0].resumed
    assert plans[0].blocks == ()
    assert steps.audited(world) == {AT: 5}


@pytest.mark.parametrize("holes", ["sparse", "accepted"])
def test_records_of_a_range_with_holes_that_expire_behind_a_read_are_not_believed(
    world: World, holes: str
) -> None:
    """Offsets may be missing, so nothing proves that the deleted records were read."""
    if holes == "sparse":
        world.configure(offsets="sparse")
        world.produce([ERROR] * 5)
    else:
        leave_a_hole(world)
        world.produce([ERROR] * 2)
        with pytest.raises(RecordsMissingError):
            world.minute()
        world.plan()
        steps.accept(world)
    batch_id = world.planned().batch_id
    with pytest.raises(DataLossError, match="first offset is now 4"):
        steps.behind_the_read(world, lambda: world.delete_records(0, 4)).run(batch_id)
    assert world.counts() == {}


def adopt(world: World, topic_id: str, cluster_id: str, starts: dict[int, int]) -> dict[int, int]:
    """What ``tally topics adopt`` does in the ledger."""
    shown = AdoptionView(
        pipeline=world.name,
        topic=world.topic,
        cluster_id=cluster_id,
        topic_id=topic_id,
        start="latest",
        partitions=starts_of(starts),
    )

    def decide(tx: Transaction) -> dict[int, int]:
        positions.lock_pipeline(tx, world.name, world.name)
        begun = adopt_topic(tx, shown, by="me", reason="a test")
        return {start.partition: start.offset for start in begun}

    return world.database.run(decide)


@pytest.mark.usefixtures("once")
def test_adopting_waits_for_the_commit_that_is_under_way(own_world: World) -> None:
    """What the commit counts is not recorded as lost too."""
    world = own_world  # as above
    world.produce([ERROR] * 5)
    with commit_under_way(world) as (committed, commit_now), ThreadPoolExecutor(1) as pool:
        adopter = pool.submit(adopt, world, "another generation", "a cluster", {0: 0, 1: 0})
        wait_until(world.waiting_statements, pause_s=LOCK_LIST_S)
        assert not adopter.done()
        commit_now.set()
        assert adopter.result(60) == {0: 0, 1: 0}
        assert committed.result(60).committed
    assert steps.losses(world) == []
    assert steps.audited(world) == {AT: 5}


def test_what_prune_forgets_is_still_lost_by_an_adoption(world: World) -> None:
    """An abandoned batch shows what Kafka once held, until its offsets are counted.

    It is lost with the old topic, and an attempt that has read it is fenced.
    """
    batch = claimed(world, world.planned([ERROR] * 5))
    steps.abandoned(world, batch.batch_id)
    prune(world.context(), world.name, timedelta())
    adopt(world, "another generation", "a cluster", {0: 0, 1: 0})
    assert steps.losses(world) == [(0, 0, 5, "expired", "accepted")]
    with world.database.transaction(read_only=True) as tx:
        (loss,) = find_losses(tx, world.name)
    assert (loss.decided_by, loss.reason) == ("me", "a test")
    assert world.audit().holds
    with pytest.raises(FencedError):
        commit(world, batch, result(batch))


HOUR = timedelta(hours=1)
DECADE = timedelta(days=3653)
NONE = timedelta()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clocked(world: World, clock: ManualClock) -> World:
    return world.through(database=replace(world.database, clock=clock))


@pytest.mark.parametrize(
    "jumps",
    [(NONE, HOUR, DECADE), (NONE, -HOUR, -DECADE), (NONE, DECADE, NONE), (DECADE, -DECADE, DECADE)],
    ids=["forwards", "backwards", "there and back", "to and fro"],
)
def test_a_clock_that_jumps_between_plan_claim_and_commit_loses_and_doubles_nothing(
    clocked: World, clock: ManualClock, jumps: tuple[timedelta, timedelta, timedelta]
) -> None:
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
        assert again.batch_ids == [batch.batch_id]
        assert again.ranges == [s.range for s in batch.segments]
        assert commit(clocked, batch, result(batch))
        assert not commit(clocked, batch, result(batch))
        assert clocked.counts() == {AT: 6 * number}
        assert clocked.offsets() == {0: (0, 3 * number), 1: (0, 3 * number)}
    assert clocked.plan().batches == ()
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
    assert steps.reasons(replanned) == [(0, BlockReason.RECORDS_LOST)]
    with pytest.raises(FencedError, match="abandoned"):
        commit(clocked, batch, result(batch))
    assert clocked.counts() == {}
    healthy = claimed(clocked, planned(clocked))
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
    assert steps.audited(clocked) == {AT: 6}


def overtaken_by(world: World, act: Callable[[], object], times: int = 1) -> World:
    """The same pipeline; something happens between Kafka's answer and the planner's lock."""

    def after(snapshot: KafkaSnapshot) -> KafkaSnapshot:
        act()
        return snapshot

    return world.through(kafka=DisturbedKafka(world.context().kafka, alter=after, times=times))


def test_what_was_counted_since_kafka_was_asked_is_no_truncation(world: World) -> None:
    """Each answer is older than the ledger: that is an error that passes, and no loss."""
    steps.count(world, [ERROR] * 2)

    def a_minute() -> None:
        steps.count(world, [ERROR])

    with pytest.raises(TransactionRetryError, match="has changed each time"):
        overtaken_by(world, a_minute, times=3).plan()
    assert overtaken_by(world, a_minute, times=2).plan().blocks == ()
    assert steps.losses(world) == []


def test_a_topic_that_is_new_after_a_restore_begins_where_it_is_configured(world: World) -> None:
    """Where a plan had asked Kafka as for a known one."""
    world.configure(start="latest")
    world.produce([ERROR] * 4)
    world.plan()
    of = "join topic_incarnation i using (incarnation_id) where i.pipeline = %s"

    def restored() -> None:
        world.execute(f"delete o from partition_offset o {of}", (world.name,))
        world.execute("delete from topic_incarnation where pipeline = %s", (world.name,))

    assert overtaken_by(world, restored).plan().batches == ()
    assert world.offsets()[0] == (4, 4)


def test_a_batch_of_a_retired_generation_holds_up_no_other_topic(world: World) -> None:
    """Kafka still has that generation: as where a change of clusters was undone."""
    other = f"{world.topic}_b"
    world.create_topic(1, other)
    world.configure(topics=[world.topic, other])
    world.produce([ERROR] * 5)
    world.produce([LATER] * 3, topic=other)
    world.planned()
    adopt(world, "another generation", "a cluster", {0: 0, 1: 0})
    planned = world.plan()
    assert "another generation of the topic was adopted" in planned.abandoned[0]
    (batch_id,) = planned.batch_ids
    world.run(batch_id)
    assert world.counts() == {AT_LATER: 3}
