"""Planners, runners and operators that work on one pipeline concurrently or in turn."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tally.deliveries.choice import delivery_of
from tally.errors import ConfigError, DataLossError, FencedError, RecordsMissingError
from tally.ledger import batches, positions
from tally.ledger.decisions import Adoption, adopt_topic
from tally.model import Batch
from tally.mysql.transactions import Transaction
from tally.pipeline.plan import Planned
from tally.pipeline.prune import prune
from tally.planning.blocks import BlockReason
from tally.testing.kafka import DisturbedKafka
from tests.minute.test_losses import accept, leave_a_hole, losses
from tests.proxy import Proxy, Session, statement_of
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S, World

pytestmark = pytest.mark.stack

ERROR = "2017-07-30 14:09:08 ERROR some message"


def planned_id(planned: Planned) -> int:
    """The id of the planned batch."""
    assert planned.batch is not None
    return planned.batch.batch_id


def test_a_plan_waits_for_the_commit_that_is_under_way(world: World) -> None:
    """Planned while its batch commits, the next batch begins where that one ended."""
    world.produce([ERROR] * 3)
    with commit_under_way(world) as commit_now, ThreadPoolExecutor(1) as pool:
        world.produce([ERROR] * 2)
        planner = pool.submit(world.plan)
        wait_until(world.waiting_statements, pause_s=LOCK_LIST_S)
        assert not planner.done()
        commit_now.set()
        planned = planner.result(60)
    assert planned.batch is not None
    assert [(s.range.from_offset, s.range.until_offset) for s in planned.batch.segments] == [(3, 5)]
    assert world.run(planned_id(planned)).committed
    assert world.counts() == {"2017-07-30 14:09": 5}


@contextmanager
def commit_under_way(world: World) -> Iterator[threading.Event]:
    """A run that has written all of its batch and sends COMMIT when the event is set."""
    batch_id = planned_id(world.plan())
    inside, commit_now = threading.Event(), threading.Event()
    last: dict[int, str] = {}

    def hold(session: Session, packet: bytes) -> bool:
        before = last.get(session.thread_id, "")
        last[session.thread_id] = statement = statement_of(packet)
        if statement == "COMMIT" and before.startswith("update batch set state = 'committed'"):
            inside.set()
            if not commit_now.wait(120):
                return False
        session.server.sendall(packet)
        return True

    mysql = world.settings.mysql
    with Proxy(mysql.host, mysql.port, hold) as proxy, ThreadPoolExecutor(1) as pool:
        database = world.database.adjusted(port=proxy.port, tls="disabled")
        runner = pool.submit(world.through(database=database).run, batch_id)
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
    world.execute(
        "update partition_offset o join topic_incarnation i using (incarnation_id)"
        " set o.next_offset = 2, o.start_offset = 2 where i.pipeline = %s and o.partition_id = 0",
        (world.name,),
    )
    planned = world.plan()
    assert "the committed offset is 2" in planned.abandoned[0]
    assert world.run(planned_id(planned)).committed
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.audit().holds


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
    assert [block.reason for block in planned.blocks] == [BlockReason.TOPIC_MISSING]
    assert world.run(planned_id(planned)).committed
    assert world.counts() == {"2017-07-30 14:09": 3}


def test_records_that_expire_behind_a_read_are_counted(world: World) -> None:
    """Kafka may lose records after a complete read; no plan abandons the batch."""
    world.produce([ERROR] * 5)
    batch_id = planned_id(world.plan())
    plans: list[Planned] = []
    expiring = expire_behind_the_read(world, 4, lambda: plans.append(world.plan()))
    assert expiring.run(batch_id).committed
    assert plans[0].resumed
    assert plans[0].blocks == ()
    assert world.counts() == {"2017-07-30 14:09": 5}
    assert world.audit().holds


def test_sparse_records_that_expire_behind_a_read_are_not_believed(world: World) -> None:
    """Offsets may be missing, so nothing proves that the deleted records were read."""
    world.configure(offsets="sparse")
    world.produce([ERROR] * 5)
    batch_id = planned_id(world.plan())
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
    batch_id = planned_id(world.plan())
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
    batch_id = planned_id(world.plan())
    world.delete_records(0, 3)
    with pytest.raises(DataLossError):
        world.run(batch_id)
    planned = world.plan()
    assert "first offset is now 3" in planned.abandoned[0]
    assert [block.reason for block in planned.blocks] == [BlockReason.RECORDS_LOST]
    assert world.run(planned_id(planned)).committed
    assert world.counts() == {"2017-07-30 14:09": 2}


def test_the_claim_of_a_dead_attempt_expires(world: World) -> None:
    """After the pipeline's patience a claim no longer protects the batch."""
    world.produce([ERROR] * 5)
    batch_id = planned_id(world.plan())
    world.database.run(lambda tx: batches.claim(tx, batch_id, "it"))
    world.delete_records(0, 3)
    assert world.plan().resumed
    long_ago = datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1)
    world.execute("update batch set claimed_at = %s where batch_id = %s", (long_ago, batch_id))
    assert world.plan().abandoned


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
    assert adopt(world, generation["topic_id"], generation["cluster_id"], {0: 0, 1: 0}) == {
        0: 5,
        1: 0,
    }
    world.produce([ERROR] * 2)
    assert world.minute() is not None
    assert world.counts() == {"2017-07-30 14:09": 7}
    assert world.audit().holds


def test_adopting_records_what_was_planned_and_never_counted(world: World) -> None:
    """Offsets that were planned and never counted are recorded as lost with the old topic."""
    world.produce([ERROR] * 5)
    batch = world.plan().batch
    assert batch is not None
    batch = world.database.run(lambda tx: batches.claim(tx, batch.batch_id, "it"))
    adopt(world, "another generation", "a cluster", {0: 0, 1: 0})
    losses = world.rows(
        "select l.from_offset, l.until_offset, l.state, l.decided_by, l.reason"
        " from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s",
        (world.name,),
    )
    assert losses == [
        {
            "from_offset": 0,
            "until_offset": 5,
            "state": "accepted",
            "decided_by": "me",
            "reason": "a test",
        }
    ]
    assert world.audit().holds
    with pytest.raises(FencedError):
        world.database.run(lambda tx: batches_commit(tx, world, batch))


def test_adopting_waits_for_the_commit_that_is_under_way(world: World) -> None:
    """What the commit counts is not recorded as lost too."""
    world.produce([ERROR] * 5)
    with commit_under_way(world) as commit_now, ThreadPoolExecutor(1) as pool:
        adopter = pool.submit(adopt, world, "another generation", "a cluster", {0: 0, 1: 0})
        wait_until(world.waiting_statements, pause_s=LOCK_LIST_S)
        assert not adopter.done()
        commit_now.set()
        assert adopter.result(60) == {0: 0, 1: 0}
    assert losses(world) == []
    assert world.counts() == {"2017-07-30 14:09": 5}
    assert world.audit().holds


def test_what_prune_forgets_is_still_lost_by_an_adoption(world: World) -> None:
    """An abandoned batch shows what Kafka once held, until its offsets are counted."""
    world.produce([ERROR] * 5)
    batch_id = planned_id(world.plan())
    world.database.run(lambda tx: batches.abandon(tx, batch_id, by="me", reason="a test"))
    prune(world.context(), world.name, timedelta(), lambda *_: None)
    adopt(world, "another generation", "a cluster", {0: 0, 1: 0})
    assert losses(world) == [(0, 0, 5, "expired", "accepted")]
    assert world.audit().holds


def batches_commit(tx: Transaction, world: World, batch: Batch) -> bool:
    """The commit of an attempt that began before the adoption."""
    from tests.minute.test_commit import result  # noqa: PLC0415

    return delivery_of(world.pipeline).commit(tx, batch, result(batch))


def test_a_result_table_changed_between_plan_and_run_is_refused(world: World) -> None:
    """Counts never land in a table that is not the pipeline's; the audit names the mistake."""
    other = f"{world.name}_b"
    world.produce([ERROR] * 3)
    batch_id = planned_id(world.plan())
    world.execute(f"create table `{other}` like `{world.name}`")
    world.configure(result_table=other)
    with pytest.raises(ConfigError, match="has counted into"):
        world.run(batch_id)
    assert world.rows(f"select * from `{other}`") == []
    assert not world.audit().holds
    world.configure(result_table=world.name)
    assert world.run(batch_id).committed
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.audit().holds
