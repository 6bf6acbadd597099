"""A pipeline that commits each partition by itself, from the Spark task that reads it."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tally.aggregates.counts import CountRequest, Counts
from tally.app.outcomes import batch_outcome
from tally.errors import (
    ConfigError,
    FencedError,
    MalformedFloodError,
    PackageMissingError,
    ReadError,
    RecordsMissingError,
    RecordTimestampError,
    SeriesFloodError,
    TallyError,
)
from tally.ledger import batches
from tally.pipeline.context import Context, Reader
from tally.pipeline.replay import request_replay, run_or_replan, run_replay
from tally.pipeline.replay_plan import preview_replay
from tally.pipeline.run import Ran
from tally.planning.replay_request import BoundsAsked
from tally.spark.counting import SparkReader
from tally.spark.task_groups import add_up
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tally_local.stack.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LINES = [
    "2017-07-30 14:09:08 ERROR a",
    "2017-07-30 14:09:59 ERROR b",
    "2017-07-30 14:10:00 INFO c",
    "2017-07-30 14:11:00 ERROR d",
]
COUNTED = {"2017-07-30 14:09": 2, "2017-07-30 14:11": 1}
BAD = ["2017-07-30 14:09:08", "no time", None, "2017-02-30 14:09:08 ERROR no such day"]


@pytest.fixture(params=[0, 1, 32], ids=["grouped by Arrow", "by both", "by Spark"])
def world(
    migrated: "Stack",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> World:
    """A topic of three partitions, each of which is committed by itself.

    So many of the ranges of a read, however small, are grouped by Spark, and the others by Arrow.
    """
    monkeypatch.setattr("tally.spark.task_counting._APART_OFFSETS_MIN", 0)
    monkeypatch.setattr("tally.spark.task_counting._APART_MAX", request.param)
    return World.create(migrated, tmp_path, delivery="partition", partitions=3)


def minute(world: World, spark: "SparkSession") -> list[Ran]:
    """Plan, and run what is open."""
    ids = [batch.batch_id for batch in world.plan().batches]
    return run_or_replan(world.context(spark), ids) if ids else []


def planned_in(world: World, *partitions: int) -> list[int]:
    """Write the lines to some partitions; returns the batches that are planned."""
    for partition in partitions:
        world.produce(LINES, partition)
    return [batch.batch_id for batch in world.plan().batches]


def states(world: World) -> dict[int, str]:
    """The state of each partition's only segment."""
    return {s["partition_id"]: s["state"] for s in world.segments()}


def test_each_partition_is_a_batch_of_its_own(world: World, spark: "SparkSession") -> None:
    """Each range is planned and committed by itself, and the result is the sum."""
    world.produce(LINES, 0)
    world.produce(LINES[:2], 2)
    assert [(r.committed, len(r.batch.segments)) for r in minute(world, spark)] == [(True, 1)] * 2
    assert world.counts() == {"2017-07-30 14:09": 4, "2017-07-30 14:11": 1}
    assert world.offsets() == {0: (0, 4), 1: (0, 0), 2: (0, 2)}
    assert [(s["partition_id"], s["state"], s["records"]) for s in world.segments()] == [
        (0, "live", 4),
        (2, "live", 2),
    ]
    assert world.audit().holds
    assert minute(world, spark) == []


def test_malformed_records_are_kept(world: World, spark: "SparkSession") -> None:
    """A partition with malformed records is read again, with each record judged by itself."""
    world.produce([*LINES, *BAD, *LINES], 0)
    world.produce(LINES, 1)
    assert all(ran.committed for ran in minute(world, spark))
    assert world.counts() == {minute_: 3 * count for minute_, count in COUNTED.items()}
    assert [(d["record_offset"], d["value"]) for d in world.dead_letters()] == [
        (4 + n, None if line is None else line.encode()) for n, line in enumerate(BAD)
    ]
    assert {(s["records"], s["matched"], s["malformed"]) for s in world.segments()} == {
        (12, 6, 4),
        (4, 3, 0),
    }
    assert world.audit().holds


def test_labels_and_bytes_are_those_of_a_batch_of_all(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Both deliveries store the same rows, also where half of the records are malformed."""
    lines = [
        *(f"2017-07-30 14:{n % 7:02}:{n % 60:02} {'EWI'[n % 3]}{'x' * (n % 5)}" for n in range(99)),
        *LINES,
        *BAD,
    ]
    keys: dict[str, Any] = {
        "labels": ["level", "partition", "key"],
        "measure": "bytes",
        "levels": ["E", "Ex", "Exx", "W", "ERROR"],
        "max_malformed_ratio": 1,
    }
    found = []
    for delivery in ("batch", "partition"):
        (tmp_path / delivery).mkdir()
        world = World.create(migrated, tmp_path / delivery, delivery=delivery, partitions=2, **keys)
        world.produce(lines, 0)
        world.produce(lines[:50], 1)
        assert minute(world, spark)
        found.append(
            (
                world.rows(f"select * from `{world.name}` order by 1, 2, 3, 4"),
                [(s["partition_id"], s["records"], s["matched"]) for s in world.segments()],
                [(d["record_offset"], d["reason"], d["value"]) for d in world.dead_letters()],
            )
        )
        assert world.audit().holds
    assert found[0] == found[1]
    assert len(found[0][0]) > 20


def test_two_topics_do_not_mix(world: World, spark: "SparkSession") -> None:
    """The partitions of two topics have the same numbers."""
    other = f"{world.topic}-other"
    world.create_topic(1, other)
    world.configure(topics=[world.topic, other])
    world.produce(LINES, 0)
    world.produce([*LINES, *BAD], 0, topic=other)
    assert len(minute(world, spark)) == 2
    assert world.counts() == {minute_: 2 * count for minute_, count in COUNTED.items()}
    assert {(s["topic"], s["records"]) for s in world.segments()} == {
        (world.topic, 4),
        (other, 8),
    }


def test_a_range_of_markers_alone_is_committed(world: World, spark: "SparkSession") -> None:
    """A task that reads no record cannot know its partition; its offsets move all the same."""
    world.configure(offsets="sparse")
    producer = world.producer(**{"transactional.id": world.name})
    producer.init_transactions(30)
    for partition, end in ((0, producer.abort_transaction), (1, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(world.topic, LINES[0], partition=partition)
        producer.flush(30)
        end(30)
        world.wait_for_markers(partition)
    assert sorted(ran.batch.segments[0].range.offsets for ran in minute(world, spark)) == [2, 2]
    assert world.counts() == {"2017-07-30 14:09": 1}
    assert world.offsets() == {0: (0, 2), 1: (0, 2), 2: (0, 0)}
    assert world.audit().holds


def test_a_hole_blocks_its_partition_and_the_others_commit(
    world: World, spark: "SparkSession"
) -> None:
    """Offsets without a record are a loss of that partition alone."""
    producer = world.producer(**{"transactional.id": world.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.topic, LINES[0], partition=0)
    producer.commit_transaction(30)
    world.wait_for_markers(0)
    world.produce(LINES, 1)
    with pytest.raises(RecordsMissingError, match="1 records of 2"):
        minute(world, spark)
    assert world.counts() == COUNTED
    assert states(world) == {0: "abandoned", 1: "live"}
    assert [block.partition for block in world.plan().blocks] == [0]


def test_a_partition_that_fails_keeps_no_other_from_its_commit(
    world: World, spark: "SparkSession"
) -> None:
    """A flood of malformed records stops one partition; the others go on, minute by minute."""
    world.configure(max_malformed_per_batch=3)
    for n in range(2):
        if not n:
            world.produce(BAD, 2)
        world.produce(LINES, 0)
        world.produce(LINES, 1)
        with pytest.raises(MalformedFloodError, match="4 of 4 records are malformed"):
            minute(world, spark)
    assert world.counts() == {minute_: 4 * count for minute_, count in COUNTED.items()}
    assert world.offsets() == {0: (0, 8), 1: (0, 8), 2: (0, 0)}
    world.configure(max_malformed_per_batch=4)
    assert [ran.batch.segments[0].range.partition.partition for ran in minute(world, spark)] == [2]
    assert world.audit().holds


def test_the_series_of_a_partition_are_limited(world: World, spark: "SparkSession") -> None:
    """The limit is each partition's own."""
    world.configure(labels=["key"], max_series_per_batch=2)
    for partition, keys in ((0, "ab"), (1, "abc")):
        producer = world.producer()
        for key in keys:
            producer.produce(world.topic, LINES[0], key=key, partition=partition)
        producer.flush(30)
    from tally.app.migrate import migrate  # noqa: PLC0415

    migrate(world.database, world.settings)
    with pytest.raises(SeriesFloodError, match="give 3 rows"):
        minute(world, spark)
    assert states(world) == {0: "live", 1: "planned"}


def test_a_replay_replaces_partition_by_partition(world: World, spark: "SparkSession") -> None:
    """Each range of a replay is atomic by itself; together they replace what was asked for."""
    world.produce([*LINES, *BAD], 0)
    world.produce(LINES, 1)
    minute(world, spark)
    world.configure(levels=["INFO"])
    ctx = world.context(spark)
    preview = preview_replay(ctx, world.name, BoundsAsked())
    replay_id = request_replay(ctx, preview, reason="a test").replay_id
    assert len(list(run_replay(ctx, replay_id))) == 2
    assert world.counts() == {"2017-07-30 14:10": 2}
    assert Counter(s["state"] for s in world.segments()) == {"superseded": 2, "live": 2}
    assert len(world.dead_letters()) == 4
    assert world.audit().holds


def test_a_change_of_delivery_leaves_open_batches_as_they_are(
    world: World, spark: "SparkSession"
) -> None:
    """What is open is finished as it was planned, in both directions."""
    world.produce(LINES, 0)
    world.produce(LINES, 1)
    planned = world.plan().batches
    world.configure(delivery="batch")
    again = world.plan()
    assert (again.batches, again.resumed) == (planned, True)
    minute(world, spark)
    world.produce(LINES, 0)
    world.produce(LINES, 1)
    whole = world.plan().batch
    assert whole is not None
    world.configure(delivery="partition")
    world.produce(LINES, 2)
    assert [len(batch.segments) for batch in world.plan().batches] == [2, 1]
    minute(world, spark)
    assert world.counts() == {minute_: 5 * count for minute_, count in COUNTED.items()}
    assert world.audit().holds


class DisturbedReader:
    """Reads with Spark, and does something after the claim, before the read."""

    def __init__(self, reader: SparkReader, before: Callable[[CountRequest], None]) -> None:
        self.reader, self.before = reader, before
        self.count = reader.count

    def count_each(
        self,
        requests: Sequence[CountRequest],
        work: Callable[[CountRequest, Counts], Any],
        open_set: Any = None,
    ) -> Iterator[tuple[CountRequest, Any]]:
        """See :meth:`tally.pipeline.context.Reader.count_each`."""
        for request in requests:
            self.before(request)
        yield from self.reader.count_each(requests, work, open_set)


def reading_by(
    world: World, spark: "SparkSession", wrapped: Callable[[SparkReader], Reader]
) -> Context:
    """A context with something around its reader."""
    ctx = world.context(spark)

    @contextmanager
    def opened() -> Iterator[Reader]:
        with ctx.open_reader() as reader:
            assert isinstance(reader, SparkReader)
            yield wrapped(reader)

    return dataclasses.replace(ctx, open_reader=opened)


def disturbed(
    world: World, spark: "SparkSession", before: Callable[[CountRequest], None]
) -> Context:
    """A context whose reader is disturbed."""
    return reading_by(world, spark, lambda reader: DisturbedReader(reader, before))


def test_the_newest_attempt_of_each_partition_commits(world: World, spark: "SparkSession") -> None:
    """An attempt that was overtaken at one partition commits the others, and changes nothing."""
    ids = planned_in(world, 0, 1)

    def overtake(request: CountRequest) -> None:
        if request.ranges[0].partition.partition == 0:
            world.database.run(lambda tx: batches.claim(tx, ids[0], "somebody else"))

    with pytest.raises(FencedError, match="attempt 2 has replaced attempt 1"):
        run_or_replan(disturbed(world, spark, overtake), ids)
    assert states(world) == {0: "planned", 1: "live"}
    assert world.counts() == COUNTED
    assert len(minute(world, spark)) == 1
    assert world.counts() == {minute_: 2 * count for minute_, count in COUNTED.items()}


def test_an_abandoned_partition_is_not_counted(world: World, spark: "SparkSession") -> None:
    """A batch that is abandoned under the read changes nothing; its offsets are planned again."""
    ids = planned_in(world, 0, 1)

    def abandon(request: CountRequest) -> None:
        if request.ranges[0].partition.partition == 1:
            world.database.run(lambda tx: batches.abandon(tx, ids[1], by="ann", reason="a test"))

    with pytest.raises(FencedError, match="was abandoned by ann: a test"):
        run_or_replan(disturbed(world, spark, abandon), ids)
    assert world.counts() == COUNTED
    assert len(minute(world, spark)) == 1
    assert world.counts() == {minute_: 2 * count for minute_, count in COUNTED.items()}
    assert world.audit().holds


def test_a_topic_that_is_created_again_under_the_read_commits_nothing(
    world: World, spark: "SparkSession"
) -> None:
    """The task asks for the topic's id after its read."""
    ids = planned_in(world, 0)

    def create_again(_: CountRequest) -> None:
        world.delete_topic()
        world.create_topic(3)
        world.produce(LINES, 0)

    with pytest.raises(TallyError, match=r"another topic id|no longer holds"):
        run_or_replan(disturbed(world, spark, create_again), ids)
    assert world.counts() == {}
    assert world.offsets()[0] == (0, 0)


def test_a_task_that_spark_repeats_counts_once(world: World, spark: "SparkSession") -> None:
    """The second copy of a task finds its batch committed, for the attempt that it works for."""
    ids = planned_in(world, 0)
    told = []

    class Twice:
        def __init__(self, reader: SparkReader) -> None:
            self.reader, self.count = reader, reader.count

        def count_each(
            self,
            requests: Sequence[CountRequest],
            work: Callable[[CountRequest, Counts], Any],
            open_set: Any = None,
        ) -> Iterator[tuple[CountRequest, Any]]:
            told.extend(self.reader.count_each(requests, work, open_set))
            yield from self.reader.count_each(requests, work, open_set)

    (ran,) = run_or_replan(reading_by(world, spark, Twice), ids)
    assert ran.committed
    assert [outcome for _, outcome in told] == [ran.totals]
    assert world.counts() == COUNTED


def test_a_partition_is_read_by_one_task(world: World, spark: "SparkSession") -> None:
    """Options that divide a partition are refused; were they there, they would change nothing."""
    world.configure(offsets="sparse")
    world.produce(LINES * 10, 0)
    (batch,) = world.plan().batches
    divided = world.pipeline.model_copy(update={"reader": {"minPartitions": "8"}})
    request = CountRequest(
        pipeline=divided, ranges=[batch.segments[0].range], batch=batch, rows_before=0
    )
    with world.context(spark).open_reader() as reader:
        ((_, totals),) = reader.count_each([request], _records)
    assert totals == 40
    with pytest.raises(ConfigError, match='delivery = "partition" commits each partition'):
        world.configure(reader={"minPartitions": "8"})


def _records(_: CountRequest, counts: Counts) -> int:
    return sum(total.records for total in counts.totals.values())


def test_a_task_with_two_partitions_is_refused() -> None:
    """A task that has read two partitions cannot commit one of them."""
    import pyarrow as pa  # noqa: PLC0415

    batch = pa.RecordBatch.from_pydict({"partition": pa.array([1, 1, 2], pa.int32())})
    with pytest.raises(ReadError, match="two partitions, 1 and 2"):
        list(add_up([batch], ["partition"], [], []))
    each = [batch.slice(0, 2), batch.slice(2)]
    with pytest.raises(ReadError, match="two partitions"):
        list(add_up(each, ["partition"], ["partition"], []))


def test_a_partition_that_spark_cannot_read_holds_up_no_other(
    world: World, spark: "SparkSession"
) -> None:
    """Spark's own error ends the job of all: each one that is left gets a job of its own."""
    world.delete_topic()
    world.create_topic(3, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    for partition in (0, 1, 2):
        world.produce(LINES, partition)
    producer = world.producer()
    producer.produce(world.topic, LINES[0], partition=0, timestamp=2**63 // 1000 + 1)
    assert producer.flush(30) == 0
    ids = [batch.batch_id for batch in world.plan().batches]
    committed: list[int] = []
    with pytest.raises(RecordTimestampError, match=f"{world.topic}/0") as failure:
        run_or_replan(
            world.context(spark), ids, on_ran=lambda ran: committed.append(ran.batch.batch_id)
        )
    assert f"{world.topic}/1" not in str(failure.value)
    assert committed == ids[1:]
    assert states(world) == {0: "planned", 1: "live", 2: "live"}


def test_executors_with_another_version_commit_nothing(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ledger records as the version is the one that has counted."""
    ids = planned_in(world, 0)
    monkeypatch.setattr("tally.pipeline.run_partitions.__version__", "0.0.0")
    with pytest.raises(PackageMissingError, match=r"the driver's has 0\.0\.0"):
        run_or_replan(world.context(spark), ids)
    assert states(world) == {0: "planned"}


def test_a_batch_that_was_abandoned_before_holds_up_no_other(
    world: World, spark: "SparkSession"
) -> None:
    """It is told at the end, and the others are counted."""
    ids = planned_in(world, 0, 1)
    world.database.run(lambda tx: batches.abandon(tx, ids[0], by="ann", reason="a test"))
    with pytest.raises(FencedError, match="was abandoned by ann"):
        run_or_replan(world.context(spark), ids)
    assert states(world) == {0: "abandoned", 1: "live"}
    outcome = batch_outcome(world.context(), ids)
    assert outcome.is_committed
    assert "was abandoned by ann" in outcome.abandoned[0]
    assert (outcome.standing, outcome.matched) == ((ids[1],), 3)


def test_replays_that_conflict_at_every_partition_are_replanned(
    world: World, spark: "SparkSession"
) -> None:
    """Of two replays of everything the second one finds all of its segments superseded."""
    world.add_partitions(7)
    for partition in range(7):
        world.produce(LINES, partition)
    minute(world, spark)
    ctx = world.context(spark)
    asked = [
        request_replay(ctx, preview_replay(ctx, world.name, BoundsAsked()), reason="a test")
        for _ in range(2)
    ]
    for requested in asked:
        assert len(list(run_replay(ctx, requested.replay_id))) == 7
    assert world.counts() == {minute_: 7 * count for minute_, count in COUNTED.items()}
    assert Counter(s["state"] for s in world.segments()) == {
        "superseded": 14,
        "live": 7,
        "abandoned": 7,
    }
    assert world.audit().holds
