"""What is due: new partitions, open transactions and timestamps of the future."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tally.status.health import Health, Problem, ProblemReason
from tally.status.status import Statuses, StatusView
from tests.fakes import ManualClock
from tests.minute import steps
from tests.minute.steps import ERROR
from tests.minute.test_plan import open_transaction
from tests.world import World

pytestmark = pytest.mark.stack


def later(world: World, **by: float) -> StatusView:
    """The status, so much later."""
    clock = ManualClock(datetime.now(UTC) + timedelta(**by))
    ctx = world.context(database=replace(world.database, clock=clock))
    return Statuses(ctx=ctx).of(world.name)


def late(view: StatusView) -> Problem:
    (found,) = [p for p in view.problems if p.reason is ProblemReason.LATE]
    return found


def stamped(at: datetime) -> dict[str, int]:
    return {"timestamp": int(at.timestamp() * 1000)}


def test_a_partition_that_was_added_is_due_from_its_first_offset(world: World) -> None:
    """Whatever the start, and before a plan knows it; what retention took of it is a loss."""
    world.configure(start="latest")
    assert world.plan().batches == ()
    world.add_partitions(3)
    world.produce([ERROR] * 8, 2)
    for start in ("latest", "2020-01-01T00:00:00+00:00"):
        world.configure(start=start)
        assert later(world, hours=5).lag_offsets == 8
        assert late(later(world, hours=5)).health is Health.FAIL
    world.delete_records(2, 3)
    assert world.plan().batches == ()
    assert steps.losses(world) == [(2, 0, 3, "expired", "open")]
    steps.accept(world)
    assert world.minute() is not None
    assert sum(world.counts().values()) == 5
    assert world.audit().holds


def test_what_kafka_lost_since_a_restore_is_a_loss_also_in_a_forgotten_topic(world: World) -> None:
    """Its mirrored offsets say that this ledger has counted it."""
    world.produce([ERROR] * 5)
    assert world.minute() is not None
    in_topic = "join topic_incarnation i using (incarnation_id) where i.pipeline = %s"
    in_batch = "join batch b using (batch_id) where b.pipeline = %s"
    for statement in (
        f"delete c from segment_count c join segment s using (segment_id) {in_batch}",
        f"delete s from segment s {in_batch}",
        f"delete o from partition_offset o {in_topic}",
        "delete from batch where pipeline = %s",
        "delete from topic_incarnation where pipeline = %s",
    ):
        world.execute(statement, (world.name,))
    world.execute(f"delete from `{world.name}`")
    world.delete_records(0, 3)
    assert world.plan().batches == ()
    assert steps.losses(world) == [(0, 0, 3, "expired", "open")]
    steps.accept(world)
    assert world.minute() is not None
    assert sum(world.counts().values()) == 2


@pytest.mark.parametrize(
    ("start", "is_planned_before"),
    [("latest", True), ("an hour ago", True), ("an hour ago", False)],
)
def test_a_start_is_found_behind_a_transaction_that_is_open(
    world: World, start: str, is_planned_before: bool
) -> None:
    """Eleven lines are older than it, and three are not."""
    now = datetime.now(UTC)
    earlier = (now - timedelta(hours=1)).isoformat()
    world.configure(offsets="sparse", start=start if start == "latest" else earlier)
    old = stamped(now - timedelta(hours=5))
    producer = open_transaction(world, **old)
    world.produce([ERROR] * 10, fields=old)
    if is_planned_before:
        world.plan()
    world.produce([ERROR] * 3)
    assert world.plan().batches == ()
    producer.abort_transaction(30)
    world.wait_for_markers()
    assert world.minute() is not None
    assert sum(world.counts().values()) == 3


def test_what_an_open_transaction_holds_up_waits_and_is_lost_like_anything_else(
    world: World,
) -> None:
    """Retention passes by its first record: nothing can be read, and what is gone is a loss."""
    world.configure(offsets="sparse")
    world.produce([ERROR])
    assert world.minute() is not None
    producer = open_transaction(world)
    world.produce([ERROR] * 100)
    view = later(world, hours=48)
    assert view.lag_offsets == 101
    assert late(view).health is Health.FAIL
    assert "find-hanging" in str(late(view).next_step)
    world.delete_records(0, 50)
    assert world.plan().batches == ()
    assert steps.losses(world) == [(0, 1, 50, "expired", "open")]
    steps.accept(world)
    assert world.plan().batches == ()
    assert later(world).lag_offsets == 52
    producer.abort_transaction(30)
    world.wait_for_markers()
    assert world.minute() is not None
    assert sum(world.counts().values()) == 1 + 52
    assert world.audit().holds


def test_a_timestamp_of_the_future_hides_no_standstill(world: World) -> None:
    """It says no age: what waits has waited since the last plan."""
    world.produce([ERROR])
    assert world.minute() is not None
    world.produce([ERROR], fields=stamped(datetime.now(UTC) + timedelta(minutes=55)))
    world.produce([ERROR] * 9)
    problem = late(later(world, minutes=50))
    assert problem.health is Health.WARN
    assert "10 offsets" in problem.detail
    assert "timestamps of the future" in problem.detail
