"""Planning on real Kafka and MySQL: what is recorded, and how Kafka may change meanwhile."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from tally.config.loading import load_settings
from tally.errors import DataLossError, KafkaUnavailableError
from tally.kafka.client import Kafka
from tally.ledger.batches import Requester
from tally.model import KafkaSnapshot, TopicPartition, TopicSnapshot
from tally.planning.blocks import BlockReason
from tally.planning.replay_request import TimesAsked
from tally.replay.preview import Preview
from tests.fakes import DisturbedKafka
from tests.minute import steps
from tests.minute.steps import AT, ERROR
from tests.minute.test_commit import count_one
from tests.minute.test_replay import preview
from tests.waiting import wait_until
from tests.world import REQUEST_TIMEOUT_S, World

pytestmark = pytest.mark.stack


def test_a_plan_is_resumed_with_the_same_ranges(world: World) -> None:
    """Whatever comes between a plan and its retry: records, partitions, another code or limit."""
    world.produce([ERROR] * 9)
    asked = Requester(name="dag error_log", version="1.2.3", run_id="scheduled__x")
    first = world.through(requester=asked).plan()
    world.produce([ERROR] * 5)
    world.produce([ERROR], 1)
    world.add_partitions(3)
    world.produce([ERROR] * 2, 2)
    world.configure(max_records_per_partition=2, levels=["WARN"], offsets="sparse")
    again = world.through(requester=Requester(name="me", version="99.0.0")).plan()
    assert again.resumed
    assert again.batches == first.batches
    assert steps.ranges(again) == [(0, 0, 9)]
    assert world.offsets()[2] == (0, 0)
    (row,) = world.batches()
    told = (row["requested_by"], row["planned_version"], row["run_id"])
    assert told == (asked.name, asked.version, asked.run_id)


def test_a_new_partition_is_counted_from_its_first_offset(world: World) -> None:
    """Also when the pipeline's start is latest; the others are then counted from their end on."""
    world.configure(start="latest")
    world.produce([ERROR] * 3)
    assert world.plan().batches == ()
    world.add_partitions(3)
    world.produce([ERROR] * 2, 0)
    world.produce([ERROR] * 2, 2)
    assert steps.ranges(world.plan()) == [(0, 3, 5), (2, 0, 2)]


def open_transaction(world: World, **fields: int) -> Producer:
    producer = world.producer(**{"transactional.id": world.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.topic, value=ERROR, partition=0, **fields)
    producer.flush(30)
    return producer


def test_open_transactions_are_not_planned(world: World) -> None:
    """read_committed ends at the last stable offset; read_uncommitted at the high watermark."""
    producer = open_transaction(world)
    assert world.plan().batches == ()
    world.configure(isolation_level="read_uncommitted")
    assert steps.ranges(world.plan()) == [(0, 0, 1)]
    producer.abort_transaction(30)


def test_two_first_planners_write_one_plan(world: World) -> None:
    """Without a row to lock, one of several planners plans and the others resume its batch."""
    world.produce([ERROR] * 3)
    plans = steps.at_once(*[world.plan] * 4)
    assert len({batch_id for p in plans for batch_id in p.batch_ids}) == 1
    assert sorted(p.resumed for p in plans) == [False, True, True, True]
    assert len(world.batches()) == 1


def test_records_lost_before_the_plan_block_their_partition(world: World) -> None:
    world.plan()
    world.produce([ERROR] * 5, 0)
    world.produce([ERROR] * 2, 1)
    world.delete_records(0, 3)
    planned = world.plan()
    assert steps.ranges(planned) == [(1, 0, 2)]
    assert steps.reasons(planned) == [(0, BlockReason.RECORDS_LOST)]
    assert world.offsets()[0] == (0, 0)
    assert steps.losses(world) == [(0, 0, 3, "expired", "open")]
    assert world.run(world.planned().batch_id).committed
    # As after a restore of the topic: Kafka's first offset is the committed offset.
    steps.set_position(world, 3)
    assert steps.ranges(world.plan()) == [(0, 3, 5)]
    assert steps.losses(world) == [(0, 0, 3, "expired", "restored")]


@pytest.mark.parametrize("was_read", [False, True], ids=["not yet tried", "tried"])
def test_records_lost_after_the_plan_abandon_the_batch(world: World, was_read: bool) -> None:
    """The batch is abandoned with its reason, the healthy partition is planned again."""
    world.produce([ERROR] * 5, 0)
    world.produce([ERROR] * 2, 1)
    first = world.planned().batch_id
    world.delete_records(0, 3)
    if was_read:
        with pytest.raises(DataLossError):
            world.run(first)
    second = world.plan()
    assert steps.ranges(second) == [(1, 0, 2)]
    assert steps.reasons(second) == [(0, BlockReason.RECORDS_LOST)]
    assert "first offset is now 3" in second.abandoned[0]
    before, after = world.batches()
    assert (before["batch_id"], before["state"]) == (first, "abandoned")
    assert "first offset is now 3" in before["reason"]
    assert world.run(after["batch_id"]).committed
    assert world.counts() == {AT: 2}


@pytest.mark.parametrize("lines", [2, 9], ids=["shorter", "longer"])
def test_a_recreated_topic_is_blocked(world: World, lines: int) -> None:
    """Its id differs, also when it has grown past the offsets; its open batch is abandoned."""
    world.produce([ERROR] * 5)
    world.plan()
    world.delete_topic()
    world.create_topic(2)
    world.produce([ERROR] * lines)
    planned = world.plan()
    assert "planned with topic id" in planned.abandoned[0]
    for plan in planned, world.plan():
        assert steps.ranges(plan) == []
        assert steps.reasons(plan) == [(None, BlockReason.TOPIC_CHANGED)]
    assert world.offsets()[0] == (0, 0)


def test_a_missing_topic_blocks_and_the_others_are_planned(world: World) -> None:
    """It is named, whether it never was there or vanishes under a plan, which is abandoned."""
    other, missing = f"{world.topic}-b", f"{world.topic}-missing"
    world.create_topic(1, other)
    world.configure(topics=[world.topic, other, missing])
    world.produce([ERROR] * 3)
    world.produce([ERROR] * 2, topic=other)
    planned = world.plan()
    assert steps.ranges(planned) == [(0, 0, 3), (0, 0, 2)]
    assert steps.reasons(planned) == [(None, BlockReason.TOPIC_MISSING)]
    assert world.admin.list_topics(timeout=10).topics.get(missing) is None
    world.delete_topic(other)
    planned = world.plan()
    assert "no such topic any more" in planned.abandoned[0]
    assert steps.reasons(planned) == [(None, BlockReason.TOPIC_MISSING)] * 2
    assert world.run(planned.batch_ids[0]).committed
    assert world.counts() == {AT: 3}


def test_a_topic_that_is_taken_out_and_put_back_loses_nothing(world: World) -> None:
    """The ledger keeps its offsets meanwhile; all topics of a pipeline are planned together."""
    other = f"{world.topic}-b"
    world.create_topic(1, other)
    world.configure(topics=[world.topic, other], start="latest")
    world.plan()
    world.configure(topics=[world.topic])
    world.produce([ERROR] * 3, topic=other)
    assert world.plan().batches == ()
    world.configure(topics=[world.topic, other])
    assert [str(s.range) for s in world.planned([ERROR] * 2).segments] == [
        f"{world.topic}/0 [0, 2)",
        f"{other}/0 [0, 3)",
    ]


def test_a_broker_that_is_down_is_a_clear_retryable_error(world: World) -> None:
    nowhere = load_settings(
        world.config,
        overrides={"kafka": {"bootstrap_servers": "127.0.0.1:9", "request_timeout_s": 2}},
    )
    with pytest.raises(KafkaUnavailableError, match=r"127\.0\.0\.1:9"):
        world.through(kafka=Kafka(nowhere.kafka)).plan()
    assert world.offsets() == {}


def test_two_later_planners_write_one_plan(world: World) -> None:
    """The second comes before the first has written: it waits, and resumes the batch."""
    world.plan()
    world.produce([ERROR] * 3)
    waiting = f"select result_table from pipeline%{world.name}%for update"
    statement = "^insert into batch "
    with ThreadPoolExecutor(1) as pool, steps.held(world, statement, World.plan) as (first, go_on):
        world.produce([ERROR] * 2)
        second = pool.submit(world.plan)
        wait_until(lambda: second.done() or steps.is_under_way(world, waiting))
        go_on.set()
        assert steps.ranges(first.result()) == steps.ranges(second.result()) == [(0, 0, 3)]
        assert (first.result().resumed, second.result().resumed) == (False, True)
    assert len(world.batches()) == 1


Lie = Callable[[TopicSnapshot], TopicSnapshot | None]


def shorter(topic: TopicSnapshot) -> TopicSnapshot:
    """The first partition ends before what was counted of it."""
    first = replace(topic.partitions[0], earliest=0, end=1)
    return replace(topic, partitions={**topic.partitions, 0: first})


def liar(world: World, lie: Lie, *, lies: int) -> DisturbedKafka:
    """Kafka, whose first answers are wrong."""

    def alter(true: KafkaSnapshot) -> KafkaSnapshot:
        told = {name: lie(topic) for name, topic in true.topics.items()}
        return replace(true, topics={name: topic for name, topic in told.items() if topic})

    return DisturbedKafka(world.context().kafka, alter=alter, times=lies)


@pytest.fixture
def counted(world: World) -> World:
    """Three lines of each of two partitions are counted, two more are written."""
    count_one(world)
    for number in (0, 1):
        world.produce([ERROR] * 2, number)
    return world


@pytest.mark.parametrize(
    ("lie", "block"),
    [
        (shorter, (0, BlockReason.TOPIC_TRUNCATED)),
        (lambda t: replace(t, partitions={0: t.partitions[0]}), (1, BlockReason.PARTITION_MISSING)),
        (lambda _: None, (None, BlockReason.TOPIC_MISSING)),
    ],
)
def test_old_metadata_is_asked_for_again_before_it_is_believed(
    counted: World, lie: Lie, block: tuple[int | None, BlockReason]
) -> None:
    """One stale answer blocks nothing, and no plan uses it."""
    kafka = liar(counted, lie, lies=1)
    plan = counted.through(kafka=kafka).plan()
    assert kafka.snapshots == 2
    assert steps.ranges(plan) == [(0, 3, 5), (1, 3, 5)]
    assert plan.blocks == ()
    steps.abandoned(counted, plan.batch_ids[0])
    plan = counted.through(kafka=liar(counted, lie, lies=99)).plan()
    assert steps.reasons(plan) == [block]
    assert counted.offsets() == {0: (0, 3), 1: (0, 3)}
    assert steps.ranges(plan) == [(n, 3, 5) for n in (0, 1) if block[0] == 1 - n]


def test_a_hanging_transaction_holds_back_its_own_partition_alone(world: World) -> None:
    world.configure(offsets="sparse")
    hanging = open_transaction(world)
    world.produce([ERROR] * 4, 0)
    world.produce([ERROR] * 2, 1)
    plan = world.plan()
    assert steps.ranges(plan) == [(1, 0, 2)]
    assert plan.blocks == ()
    assert world.offsets()[0] == (0, 0)
    # A new producer of that name, or an administrator's tool, ends it.
    world.producer(**{"transactional.id": world.name}).init_transactions(30)
    world.wait_for_markers()
    del hanging
    assert world.run(plan.batch_ids[0]).committed
    assert steps.ranges(world.plan()) == [(0, 0, 6)]


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def produce_at(world: World, minutes: Sequence[int], partition: int = 0) -> None:
    """A record for each number, so many minutes after noon by its own time."""
    for number in minutes:
        moment = int((NOON + timedelta(minutes=number)).timestamp() * 1000)
        world.produce([ERROR], partition, fields={"timestamp": moment})


def test_record_times_out_of_order_leave_nothing_out_behind_a_start_time(world: World) -> None:
    """Counting begins at the first record that is late enough; older ones behind it count too."""
    produce_at(world, [0, 10, 40, 20, 50, 30, 60], 0)
    produce_at(world, [50, 0, 40], 1)
    world.configure(start=(NOON + timedelta(minutes=30)).isoformat())
    assert steps.ranges(world.plan()) == [(0, 2, 7), (1, 0, 3)]


def test_a_start_time_after_the_last_record_begins_at_the_end(world: World) -> None:
    """The record with the latest time is not the last; new records count, whatever their time."""
    produce_at(world, [0, 40, 20])
    world.configure(start=(NOON + timedelta(minutes=50)).isoformat())
    assert world.plan().batches == ()
    assert world.offsets() == {0: (3, 3), 1: (0, 0)}
    produce_at(world, [10])
    assert steps.ranges(world.plan()) == [(0, 3, 4)]


def test_record_times_out_of_order_give_a_replay_one_range_that_has_all_between(
    world: World,
) -> None:
    """From the first record that is late enough to the first that is too late, with a warning."""
    produce_at(world, [0, 30, 10], 0)
    produce_at(world, [30, 0, 40], 1)
    assert world.minute() is not None

    def shown(since: int, before: int) -> Preview:
        times = [NOON + timedelta(minutes=number) for number in (since, before)]
        return preview(world, TimesAsked(since=times[0], before=times[1]))

    found = shown(20, 35)
    of_topic = [f"{world.topic}/0 [1, 3)", f"{world.topic}/1 [0, 2)"]
    assert [str(r) for r in found.asked] == of_topic
    assert any("a late record after that is not included" in note for note in found.notes)
    for uncounted, since, before, note in (
        ([], 12, 18, "no record lies between the two times"),
        ([], 50, 60, "nothing that was counted is as late"),
        ([90], 70, 100, "nothing that was counted is as late"),
    ):
        produce_at(world, uncounted, 0)
        nothing = shown(since, before)
        assert nothing.batches == ()
        assert f"{world.topic}/0: {note}" in nothing.notes[0]


def test_a_record_that_does_not_match_its_checksum_is_not_looked_at(world: World) -> None:
    """Nor what follows it in its partition; it is not waited for. What was before it is there."""
    world.produce(["a good line"])
    world.produce(["a bad line"])
    (segment,) = world.stack.layout.home.glob(f"*/data/{world.topic}-0/*.log")
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(b"bad line"))
        file.write(b"mad")
    place = TopicPartition(topic=world.topic, partition=0)
    began = time.monotonic()
    found = world.context().kafka.records_at({place: 0}, records_max=2)
    assert [record.value for record in found[place]] == [b"a good line"]
    assert time.monotonic() - began < REQUEST_TIMEOUT_S
