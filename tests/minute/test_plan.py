"""Planning on real Kafka and MySQL: what is recorded, and how Kafka may change meanwhile."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tally.config.loading import load_settings
from tally.errors import (
    ConfigError,
    KafkaUnavailableError,
    UnknownPipelineError,
)
from tally.kafka.client import Kafka
from tally.ledger.batches import Requester
from tally.pipeline.plan import Planned, plan_batch
from tally.planning.blocks import BlockReason
from tally.testing.statements import at_statement
from tests.world import World

pytestmark = pytest.mark.stack

LINE = "2017-07-30 14:09:08 ERROR some message"


def ranges(planned: Planned) -> list[tuple[int, int, int]]:
    """Partition, from and until of what was planned."""
    assert planned.batch is not None
    return [
        (s.range.partition.partition, s.range.from_offset, s.range.until_offset)
        for s in planned.batch.segments
    ]


def reasons(planned: Planned) -> list[tuple[int | None, BlockReason]]:
    """Partition and reason of each block."""
    return [(block.partition, block.reason) for block in planned.blocks]


def test_an_idle_minute_leaves_no_batch(world: World) -> None:
    """Without new records the start is recorded, and no batch."""
    planned = world.plan()
    assert planned.batch is None
    assert planned.blocks == ()
    assert world.batches() == []
    assert world.offsets() == {0: (0, 0), 1: (0, 0)}


def test_a_plan_is_resumed_with_the_same_ranges(world: World) -> None:
    """Lines that arrive between a plan and its retry wait for the next batch."""
    world.produce([LINE] * 3)
    first = world.plan()
    world.produce([LINE] * 5)
    world.produce([LINE], 1)
    again = world.plan()
    assert again.resumed
    assert again.batch == first.batch
    assert ranges(again) == [(0, 0, 3)]
    assert len(world.batches()) == 1


def test_new_code_and_configuration_keep_a_planned_range(world: World) -> None:
    """An upgrade or another limit between plan and retry does not change the planned ranges."""
    world.produce([LINE] * 9)
    first = world.plan()
    world.configure(max_records_per_partition=2, levels=["WARN"], offsets="sparse")
    again = world.through(requester=Requester(name="me", version="99.0.0")).plan()
    assert again.batch == first.batch
    assert ranges(again) == [(0, 0, 9)]


def test_partitions_that_are_added_between_plan_and_retry_wait(world: World) -> None:
    """The retry reads what was planned; the new partition comes next, from its first offset."""
    world.produce([LINE] * 3)
    first = world.plan()
    world.add_partitions(3)
    world.produce([LINE] * 2, 2)
    again = world.plan()
    assert again.batch == first.batch
    assert ranges(again) == [(0, 0, 3)]
    assert world.offsets()[2] == (0, 0)


def test_a_new_partition_is_counted_from_its_first_offset(world: World) -> None:
    """Also when the pipeline's start is latest."""
    world.configure(start="latest")
    world.produce([LINE] * 3)
    assert world.plan().batch is None
    world.add_partitions(3)
    world.produce([LINE] * 2, 2)
    assert ranges(world.plan()) == [(2, 0, 2)]


def test_a_backlog_is_cut_into_bounded_batches(world: World) -> None:
    """No range is longer than the limit."""
    world.configure(max_records_per_partition=4)
    world.produce([LINE] * 9)
    world.produce([LINE] * 2, 1)
    assert ranges(world.plan()) == [(0, 0, 4), (1, 0, 2)]


def test_latest_begins_at_the_end(world: World) -> None:
    """Records from before the first plan are not counted, later ones are."""
    world.configure(start="latest")
    world.produce([LINE] * 3)
    assert world.plan().batch is None
    world.produce([LINE] * 2)
    assert ranges(world.plan()) == [(0, 3, 5)]


def test_a_start_time_begins_at_the_first_record_that_late(world: World) -> None:
    """Kafka's time index decides; a partition with no record that late begins at its end."""
    world.produce([LINE] * 3, 0)
    world.produce([LINE] * 2, 1)
    between = datetime.now(UTC) + timedelta(milliseconds=1)
    while datetime.now(UTC) <= between:
        pass
    world.produce([LINE] * 4, 0)
    world.configure(start=between.isoformat())
    assert ranges(world.plan()) == [(0, 3, 7)]
    assert world.offsets()[1] == (2, 2)


def test_open_transactions_are_not_planned(world: World) -> None:
    """read_committed ends at the last stable offset; read_uncommitted at the high watermark."""
    producer = world.producer(**{"transactional.id": world.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.topic, value=LINE, partition=0)
    producer.flush(30)
    assert world.plan().batch is None
    world.configure(isolation_level="read_uncommitted")
    assert ranges(world.plan()) == [(0, 0, 1)]
    producer.abort_transaction(30)


def test_two_first_planners_write_one_plan(world: World) -> None:
    """Without a row to lock, one of several planners plans and the others resume its batch."""
    world.produce([LINE] * 3)
    barrier = threading.Barrier(4)
    plans: list[Planned] = []

    def plan() -> None:
        barrier.wait()
        plans.append(world.plan())

    threads = [threading.Thread(target=plan) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(plans) == 4
    assert len({p.batch.batch_id for p in plans if p.batch}) == 1
    assert sorted(p.resumed for p in plans) == [False, True, True, True]
    assert len(world.batches()) == 1


def test_records_lost_before_the_plan_block_their_partition(world: World) -> None:
    """The loss is recorded as open, the other partition is planned, the offset stays."""
    world.plan()
    world.produce([LINE] * 5, 0)
    world.produce([LINE] * 2, 1)
    world.delete_records(0, 3)
    planned = world.plan()
    assert ranges(planned) == [(1, 0, 2)]
    assert reasons(planned) == [(0, BlockReason.RECORDS_LOST)]
    assert world.offsets()[0] == (0, 0)
    losses = world.rows(
        "select l.* from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s",
        (world.name,),
    )
    assert [(r["from_offset"], r["until_offset"], r["state"]) for r in losses] == [(0, 3, "open")]


def test_records_lost_after_the_plan_abandon_the_batch(world: World) -> None:
    """The batch is abandoned with its reason, the healthy partition is planned again."""
    world.produce([LINE] * 5, 0)
    world.produce([LINE] * 2, 1)
    first = world.plan()
    world.delete_records(0, 3)
    second = world.plan()
    assert first.batch is not None
    assert second.batch is not None
    assert second.batch.batch_id != first.batch.batch_id
    assert ranges(second) == [(1, 0, 2)]
    assert "first offset is now 3" in second.abandoned[0]
    states = {row["batch_id"]: (row["state"], row["reason"]) for row in world.batches()}
    assert states[first.batch.batch_id][0] == "abandoned"
    assert "first offset is now 3" in states[first.batch.batch_id][1]


@pytest.mark.parametrize("lines", [2, 9], ids=["shorter", "longer"])
def test_a_recreated_topic_is_blocked(world: World, lines: int) -> None:
    """The topic id differs, also when the new topic has grown past the committed offset."""
    world.produce([LINE] * 5)
    world.plan()
    world.execute(
        "update batch set state = 'abandoned', abandoned_at = now(), reason = 'test'"
        " where pipeline = %s",
        (world.name,),
    )
    world.delete_topic()
    world.create_topic(2)
    world.produce([LINE] * lines)
    planned = world.plan()
    assert planned.batch is None
    assert reasons(planned) == [(None, BlockReason.TOPIC_CHANGED)]
    assert world.offsets()[0] == (0, 0)


def test_a_topic_recreated_under_a_plan_abandons_the_batch(world: World) -> None:
    """A range that was planned on the old topic is never read from the new one."""
    world.produce([LINE] * 5)
    first = world.plan()
    world.delete_topic()
    world.create_topic(2)
    world.produce([LINE] * 9)
    planned = world.plan()
    assert planned.batch is None
    assert first.batch is not None
    assert "planned with topic id" in planned.abandoned[0]
    assert reasons(planned) == [(None, BlockReason.TOPIC_CHANGED)]


def test_a_missing_topic_blocks_and_the_others_are_planned(world: World) -> None:
    """One of two topics is not there: it is named, the other one is read."""
    world.configure(topics=[world.topic, f"{world.topic}-missing"])
    world.produce([LINE])
    planned = world.plan()
    assert ranges(planned) == [(0, 0, 1)]
    assert reasons(planned) == [(None, BlockReason.TOPIC_MISSING)]
    assert world.admin.list_topics(timeout=10).topics.get(f"{world.topic}-missing") is None


def test_several_topics_make_one_batch(world: World) -> None:
    """All topics of a pipeline are planned together."""
    other = f"{world.topic}-b"
    world.create_topic(1, other)
    world.configure(topics=[world.topic, other])
    world.produce([LINE] * 2)
    world.produce([LINE] * 3, topic=other)
    planned = world.plan()
    assert planned.batch is not None
    assert [str(s.range) for s in planned.batch.segments] == [
        f"{world.topic}/0 [0, 2)",
        f"{other}/0 [0, 3)",
    ]


def test_a_topic_that_is_taken_out_and_put_back_loses_nothing(world: World) -> None:
    """The ledger keeps the topic's offsets while the configuration does not name it."""
    other = f"{world.topic}-b"
    world.create_topic(1, other)
    world.configure(topics=[world.topic, other], start="latest")
    world.plan()
    world.configure(topics=[world.topic])
    world.produce([LINE] * 3, topic=other)
    assert world.plan().batch is None
    world.configure(topics=[world.topic, other])
    planned = world.plan()
    assert planned.batch is not None
    assert [str(s.range) for s in planned.batch.segments] == [f"{other}/0 [0, 3)"]


def test_restored_records_close_the_loss(world: World) -> None:
    """An open loss ends by itself when Kafka's first offset is back at the ledger's."""
    world.plan()
    world.produce([LINE] * 5)
    world.delete_records(0, 3)
    world.plan()
    # As after a restore of the topic: Kafka's first offset is the committed offset.
    world.execute(
        "update partition_offset o join topic_incarnation i using (incarnation_id)"
        " set o.next_offset = 3 where i.pipeline = %s and o.partition_id = 0",
        (world.name,),
    )
    assert ranges(world.plan()) == [(0, 3, 5)]
    states = world.rows(
        "select l.state from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s",
        (world.name,),
    )
    assert [row["state"] for row in states] == ["restored"]


def test_an_end_behind_the_ledger_blocks(world: World) -> None:
    """A truncated partition is never read from a smaller offset."""
    world.produce([LINE] * 5)
    world.plan()
    world.execute(
        "update batch set state = 'abandoned', abandoned_at = now(), reason = 'test'"
        " where pipeline = %s",
        (world.name,),
    )
    world.execute(
        "update partition_offset o join topic_incarnation i using (incarnation_id)"
        " set o.next_offset = 9 where i.pipeline = %s and o.partition_id = 0",
        (world.name,),
    )
    planned = world.plan()
    assert planned.batch is None
    assert reasons(planned) == [(0, BlockReason.TOPIC_TRUNCATED)]


def test_a_dry_run_writes_nothing(world: World) -> None:
    """It answers as a plan would, and the ledger is unchanged."""
    world.produce([LINE] * 3)
    planned = plan_batch(world.context(), world.name, dry_run=True)
    assert ranges(planned) == [(0, 0, 3)]
    assert world.batches() == []
    assert world.offsets() == {}


def test_the_plan_names_who_asked(world: World) -> None:
    """User, version and Airflow's run are on the batch."""
    world.produce([LINE])
    asked = Requester(name="dag error_log", version="1.2.3", run_id="scheduled__x")
    world.through(requester=asked).plan()
    (row,) = world.batches()
    assert (row["requested_by"], row["planned_version"], row["run_id"]) == (
        "dag error_log",
        "1.2.3",
        "scheduled__x",
    )


def test_a_broker_that_is_down_is_a_clear_retryable_error(world: World) -> None:
    """It names the address and takes no longer than the timeout; nothing is written."""
    nowhere = load_settings(
        world.config,
        overrides={"kafka": {"bootstrap_servers": "127.0.0.1:9", "request_timeout_s": 2}},
    )
    with pytest.raises(KafkaUnavailableError, match=r"127\.0\.0\.1:9"):
        world.through(kafka=Kafka(nowhere.kafka)).plan()
    assert world.offsets() == {}


def test_an_unknown_pipeline_is_named_with_the_known_ones(world: World) -> None:
    """The error lists the configured pipelines."""
    with pytest.raises(UnknownPipelineError, match=world.name):
        plan_batch(world.context(), "eror_log")


def test_a_result_table_cannot_be_changed_under_a_pipeline(world: World) -> None:
    """Its counts would be split between two tables."""
    world.plan()
    world.configure(result_table=f"{world.name}_b")
    with pytest.raises(ConfigError, match="has counted into"):
        world.plan()


def test_planning_does_not_wait_for_a_reader(world: World) -> None:
    """A long audit or a status page does not block planning."""
    world.produce([LINE])
    with world.database.transaction(isolation="repeatable read", read_only=True) as tx:
        tx.rows("select * from pipeline")
        assert ranges(world.plan()) == [(0, 0, 1)]


def test_two_later_planners_write_one_plan(world: World) -> None:
    """The second comes before the first has written: it waits, and resumes the batch."""
    world.plan()
    world.produce([LINE] * 3)
    inside, continue_ = threading.Event(), threading.Event()

    def stop() -> None:
        inside.set()
        assert continue_.wait(120)

    # New partitions are what a plan writes first, also when there are none.
    listen = at_statement("^insert into partition_offset", stop)
    stopped = world.through(database=replace(world.database, listen=listen))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(stopped.plan)
        assert inside.wait(120)
        world.produce([LINE] * 2)
        second = pool.submit(world.plan)
        try:
            while not second.done() and not waits_for_the_first(world):
                pass
        finally:
            continue_.set()
        assert ranges(first.result()) == ranges(second.result()) == [(0, 0, 3)]
        assert (first.result().resumed, second.result().resumed) == (False, True)
    assert len(world.batches()) == 1


def waits_for_the_first(world: World) -> bool:
    """Whether a planner waits for the row of its pipeline."""
    return bool(
        world.rows(
            "select 1 from information_schema.processlist where user = %s"
            " and info like 'select result_table from pipeline%%for update'",
            (world.settings.mysql.user,),
        )
    )
