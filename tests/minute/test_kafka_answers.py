"""What Kafka may answer a plan: old metadata, half a list of partitions, times out of order."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tally.deliveries.contract import Result
from tally.model import Batch, KafkaSnapshot, TopicSnapshot
from tally.pipeline.replay_plan import preview_replay
from tally.planning.blocks import BlockReason
from tally.planning.replay_request import TimesAsked
from tally.testing.kafka import DisturbedKafka
from tests.minute.test_commit import LINE, claimed, commit, planned, result
from tests.minute.test_plan import ranges, reasons
from tests.waiting import wait_until
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack

Lie = Callable[[TopicSnapshot], TopicSnapshot | None]


def shorter(topic: TopicSnapshot) -> TopicSnapshot:
    """The first partition ends before what was counted of it."""
    first = replace(topic.partitions[0], earliest=0, end=1)
    return replace(topic, partitions={**topic.partitions, 0: first})


def without_a_partition(topic: TopicSnapshot) -> TopicSnapshot:
    """The second partition is left out."""
    return replace(topic, partitions={0: topic.partitions[0]})


def gone(_: TopicSnapshot) -> None:
    """No partition is named, so the topic is not there."""


LIES = pytest.mark.parametrize(
    ("lie", "block"),
    [
        (shorter, (0, BlockReason.TOPIC_TRUNCATED)),
        (without_a_partition, (1, BlockReason.PARTITION_MISSING)),
        (gone, (None, BlockReason.TOPIC_MISSING)),
    ],
)


def liar(world: World, lie: Lie, *, lies: int) -> DisturbedKafka:
    """Kafka, whose first answers are wrong."""

    def alter(true: KafkaSnapshot) -> KafkaSnapshot:
        told = {name: lie(topic) for name, topic in true.topics.items()}
        return replace(true, topics={name: topic for name, topic in told.items() if topic})

    return DisturbedKafka(world.context().kafka, alter=alter, times=lies)


@pytest.fixture
def counted(world: World) -> World:
    """Three lines of each of two partitions are counted, two more are written."""
    return count_some(world)


def count_some(world: World) -> World:
    """Count three lines of each of two partitions, and write two more."""
    batch = claimed(world, planned(world))
    assert commit(world, batch, result(batch))
    for number in (0, 1):
        world.produce([LINE] * 2, number)
    return world


@LIES
def test_old_metadata_is_asked_for_again_before_it_is_believed(
    counted: World, lie: Lie, block: object
) -> None:
    """One stale answer blocks nothing, and no plan uses it."""
    assert block
    kafka = liar(counted, lie, lies=1)
    plan = counted.through(kafka=kafka).plan()
    assert kafka.snapshots == 2
    assert ranges(plan) == [(0, 3, 5), (1, 3, 5)]
    assert plan.blocks == ()


@LIES
def test_metadata_that_stays_wrong_blocks_and_forgets_nothing(
    counted: World, lie: Lie, block: tuple[int | None, BlockReason]
) -> None:
    """A partition that is left out is named and keeps its offset; the others are planned."""
    plan = counted.through(kafka=liar(counted, lie, lies=99)).plan()
    assert reasons(plan) == [block]
    assert counted.offsets() == {0: (0, 3), 1: (0, 3)}
    healthy = [(n, 3, 5) for n in (0, 1) if block[0] == 1 - n]
    assert (ranges(plan) if plan.batch else []) == healthy


def test_a_hanging_transaction_holds_back_its_own_partition_alone(world: World) -> None:
    """Later records wait, are not skipped, and are planned once the transaction has ended."""
    world.configure(offsets="sparse")
    hanging = world.producer(**{"transactional.id": world.name})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(world.topic, value=LINE, partition=0)
    hanging.flush(30)
    world.produce([LINE] * 4, 0)
    world.produce([LINE] * 2, 1)
    plan = world.plan()
    assert ranges(plan) == [(1, 0, 2)]
    assert plan.blocks == ()
    assert world.offsets()[0] == (0, 0)
    # A new producer of that name, or an administrator's tool, ends it.
    world.producer(**{"transactional.id": world.name}).init_transactions(30)
    world.wait_for_markers()
    assert plan.batch is not None
    batch = claimed(world, plan.batch)
    assert commit(world, batch, two_of(batch))
    assert ranges(world.plan()) == [(0, 0, 6)]


def two_of(batch: Batch) -> Result:
    """Totals of a read of two lines."""
    found = result(batch, minutes={"2017-07-30 14:09:00": 2})
    totals = {
        partition: replace(total, records=2, matched=2, last_offset=1)
        for partition, total in found.totals.items()
    }
    return replace(found, totals=totals)


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def produce_at(world: World, minutes: Sequence[int], partition: int = 0) -> None:
    """A record for each number, so many minutes after noon by its own time."""
    producer = world.producer()
    for number in minutes:
        moment = int((NOON + timedelta(minutes=number)).timestamp() * 1000)
        producer.produce(world.topic, value=LINE, partition=partition, timestamp=moment)
    assert producer.flush(60) == 0


def test_record_times_out_of_order_leave_nothing_out_behind_a_start_time(world: World) -> None:
    """Counting begins at the first record that is late enough; older ones behind it count too."""
    produce_at(world, [0, 10, 40, 20, 50, 30, 60], 0)
    produce_at(world, [50, 0, 40], 1)
    world.configure(start=(NOON + timedelta(minutes=30)).isoformat())
    assert ranges(world.plan()) == [(0, 2, 7), (1, 0, 3)]


def test_a_start_time_after_the_last_record_begins_at_the_end(world: World) -> None:
    """The record with the latest time is not the last; new records count, whatever their time."""
    produce_at(world, [0, 40, 20])
    world.configure(start=(NOON + timedelta(minutes=50)).isoformat())
    assert world.plan().batch is None
    assert world.offsets() == {0: (3, 3), 1: (0, 0)}
    produce_at(world, [10])
    assert ranges(world.plan()) == [(0, 3, 4)]


def test_record_times_out_of_order_give_a_replay_one_range_that_has_all_between(
    world: World,
) -> None:
    """From the first record that is late enough to the first that is too late, with a warning."""
    produce_at(world, [0, 30, 10], 0)
    produce_at(world, [30, 0, 40], 1)
    batch = world.plan().batch
    assert batch is not None
    batch = claimed(world, batch)
    assert commit(world, batch, result(batch))
    times = TimesAsked(since=NOON + timedelta(minutes=20), before=NOON + timedelta(minutes=35))
    shown = preview_replay(world.context(), world.name, times)
    assert [str(r) for r in shown.plan.asked] == [
        f"{world.topic}/0 [1, 3)",
        f"{world.topic}/1 [0, 2)",
    ]
    assert any("a late record after that is not included" in note for note in shown.notes)
    late = TimesAsked(since=NOON + timedelta(minutes=50), before=NOON + timedelta(minutes=60))
    nothing = preview_replay(world.context(), world.name, late)
    assert nothing.plan.batches == ()
    assert "nothing that was counted is as late" in nothing.notes[0]


def test_times_without_a_counted_record_between_them_give_no_range(world: World) -> None:
    """The next record is after both times, or it is the first that is not counted yet."""
    produce_at(world, [0, 30, 60], 0)
    batch = world.plan().batch
    assert batch is not None
    batch = claimed(world, batch)
    assert commit(world, batch, result(batch))
    produce_at(world, [90], 0)
    for since, before, note in (
        (10, 20, "no record lies between the two times"),
        (70, 100, "nothing that was counted is as late"),
    ):
        times = TimesAsked(
            since=NOON + timedelta(minutes=since), before=NOON + timedelta(minutes=before)
        )
        shown = preview_replay(world.context(), world.name, times)
        assert shown.plan.batches == ()
        assert f"{world.topic}/0: {note}" in shown.notes[0]


@pytest.mark.spark
def test_a_compacted_range_is_counted_as_far_as_it_is_there(
    world: World, spark: "SparkSession"
) -> None:
    """The broker itself deletes records in its middle and at its start; offsets do not change."""
    topic = f"{world.topic}-compacted"
    world.create_topic(
        1,
        topic,
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        },
    )
    world.configure(topics=[topic], offsets="sparse")
    producer = world.producer()
    written = 0
    there: list[int] = []

    def compacted() -> bool:
        """Two of three records of one key, and one of two, are compacted away."""
        nonlocal written, there
        for key in (f"new {written}",) if written else ("a", "b", "a", "a", "c", "b"):
            producer.produce(topic, key=key, value=LINE, partition=0)
            written += 1
        assert producer.flush(60) == 0
        there = held(world, topic, written)
        return len(there) == written - 3

    wait_until(compacted, timeout_s=300)
    assert world.minute(spark) is not None
    assert world.counts() == {"2017-07-30 14:09": len(there)}
    (segment,) = world.segments()
    assert (segment["from_offset"], segment["until_offset"]) == (0, written)
    assert (segment["records"], segment["first_offset"]) == (len(there), min(there))
    assert min(there) > 0
    assert world.audit().holds


def held(world: World, topic: str, end: int) -> list[int]:
    """The offsets before the end at which the broker serves a record."""
    servers = world.settings.kafka.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": world.name})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int] = []
    while end - 1 not in offsets:
        message = consumer.poll(30)
        assert message is not None
        assert not message.error()
        offsets.append(message.offset() or 0)
    consumer.close()
    return offsets
