"""Losses: what blocks a partition, what an operator accepts, and how counting continues."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tally.app.abandon import AbandonRequest, abandon
from tally.errors import (
    RecordsMissingError,
    RecordTimestampError,
    StartInFutureError,
    UsageError,
)
from tally.ledger.decisions import accept_losses, find_losses
from tally.ledger.positions import lock_pipeline
from tally.pipeline.context import Reader
from tally.pipeline.plan import Planned
from tally.pipeline.run import run_batch
from tally.planning.blocks import BlockReason
from tally_local.stack.server import Part
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ERROR = "2017-07-30 14:09:08 ERROR some message"
LATER = "2017-07-30 15:00:00 ERROR some message"


def planned_id(planned: Planned) -> int:
    """The id of the planned batch."""
    assert planned.batch is not None
    return planned.batch.batch_id


def reasons(planned: Planned) -> list[tuple[int | None, BlockReason]]:
    """Partition and reason of each block."""
    return [(block.partition, block.reason) for block in planned.blocks]


def accept(world: World) -> None:
    """Accept every open loss."""
    with world.database.transaction(read_only=True) as tx:
        seen = find_losses(tx, world.name, only_open=True)
    with world.database.transaction() as tx:
        lock_pipeline(tx, world.name, world.name)
        accept_losses(tx, world.name, seen, by="an operator", reason="a test")


def losses(world: World) -> list[tuple[int, int, int, str, str]]:
    """Partition, range, cause and state of each loss, oldest first."""
    rows = world.rows(
        "select l.* from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s order by lost_range_id",
        (world.name,),
    )
    keys = ("partition_id", "from_offset", "until_offset", "cause", "state")
    return [tuple(row[key] for key in keys) for row in rows]  # type: ignore[misc]


def leave_a_hole(world: World, partition: int = 0) -> None:
    """Three records and the marker of their transaction: an offset without a record."""
    producer = world.producer(**{"transactional.id": world.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(world.topic, value=ERROR, partition=partition)
    producer.commit_transaction(30)
    world.wait_for_markers(partition)


def find_the_hole(world: World, spark: "SparkSession") -> None:
    """Both partitions have data, the first has a hole, and a run has found it."""
    leave_a_hole(world)
    world.produce([ERROR] * 2, 0)
    world.produce([ERROR] * 5, 1)
    with pytest.raises(RecordsMissingError, match=r"5 records of 6.*sparse"):
        world.run(planned_id(world.plan()), spark)


def test_a_hole_blocks_its_partition_and_the_others_go_on(
    world: World, spark: "SparkSession"
) -> None:
    """The batch is abandoned with the reason; the next one counts the healthy partition."""
    find_the_hole(world, spark)
    assert world.batches()[0]["state"] == "abandoned"
    assert "5 records of 6" in world.batches()[0]["reason"]
    planned = world.plan()
    assert reasons(planned) == [(0, BlockReason.RECORDS_MISSING)]
    assert world.run(planned_id(planned), spark).committed
    assert world.counts() == {"2017-07-30 14:09": 5}
    assert losses(world) == [(0, 0, 6, "missing", "open")]
    assert world.plan().batch is None
    assert world.audit().holds


def test_an_accepted_hole_lets_what_is_there_be_counted(
    world: World, spark: "SparkSession"
) -> None:
    """Only that range may have holes; later ranges must be dense."""
    find_the_hole(world, spark)
    world.produce([LATER] * 4, 0)
    accept(world)
    planned = world.plan()
    assert planned.blocks == ()
    assert planned.batch is not None
    assert next(str(s.range) for s in planned.batch.segments) == f"{world.topic}/0 [0, 6)"
    assert world.run(planned.batch.batch_id, spark).committed
    assert world.counts() == {"2017-07-30 14:09": 10}
    assert world.minute(spark) is not None
    assert world.counts() == {"2017-07-30 14:09": 10, "2017-07-30 15:00": 4}
    assert world.audit().holds
    leave_a_hole(world)
    with pytest.raises(RecordsMissingError):
        world.minute(spark)


def test_a_sparse_pipeline_needs_no_decision(world: World, spark: "SparkSession") -> None:
    """Once the configuration says that offsets may be missing, the block ends by itself."""
    find_the_hole(world, spark)
    world.configure(offsets="sparse")
    planned = world.plan()
    assert planned.blocks == ()
    assert world.run(planned_id(planned), spark).committed
    assert world.counts() == {"2017-07-30 14:09": 10}
    assert losses(world) == [(0, 0, 6, "missing", "restored")]
    assert world.audit().holds


def test_a_fenced_attempt_blocks_nothing(world: World, spark: "SparkSession") -> None:
    """Only the attempt that owns the batch may abandon it."""
    leave_a_hole(world)
    batch_id = planned_id(world.plan())

    @contextmanager
    def overtaken() -> Iterator[Reader]:
        """A reader that is opened just after another process has claimed the batch."""
        world.execute(
            "update batch set attempt = attempt + 1, claimed_at = now() where batch_id = %s",
            (batch_id,),
        )
        with world.context(spark).open_reader() as reader:
            yield reader

    with pytest.raises(RecordsMissingError):
        run_batch(world.context(open_reader=overtaken), batch_id)
    assert world.batches()[0]["state"] == "planned"
    assert losses(world) == []


def test_a_hole_in_a_topic_that_was_adopted_again_blocks_nothing(
    world: World, spark: "SparkSession"
) -> None:
    """The attempt read an earlier generation of the topic: its holes are none of the new one."""
    leave_a_hole(world)
    batch_id = planned_id(world.plan())

    @contextmanager
    def adopted() -> Iterator[Reader]:
        """A reader that is opened after an operator has adopted the current topic."""
        world.execute(
            "update topic_incarnation set state = 'retired', retired_at = now()"
            " where pipeline = %s",
            (world.name,),
        )
        world.execute(
            "insert into topic_incarnation (pipeline, topic, topic_id, cluster_id, seen_at)"
            " values (%s, %s, 'another', 'cluster', now())",
            (world.name, world.topic),
        )
        with world.context(spark).open_reader() as reader:
            yield reader

    with pytest.raises(RecordsMissingError):
        run_batch(world.context(open_reader=adopted), batch_id)
    assert losses(world) == []
    assert world.batches()[0]["state"] == "abandoned"


def cut(world: World, partition: int, after: Path, size: int) -> None:
    """Truncate a partition, as a broker does that comes back without its last records."""
    world.stack.kill(Part.KAFKA)
    with after.open("r+b") as log:
        log.truncate(size)
    for index in after.parent.glob("*index"):
        index.unlink()
    (after.parent / "leader-epoch-checkpoint").unlink(missing_ok=True)
    world.bring_back(Part.KAFKA)
    world.admin.list_topics(timeout=30)


def test_a_truncated_partition_stays_blocked_until_an_operator_accepts(
    world: World, spark: "SparkSession"
) -> None:
    """Also when it has grown again: other records have the offsets that were counted."""
    world.produce([ERROR] * 3)
    log = next(world.stack.overlay.parent.rglob(f"{world.topic}-0/00000000000000000000.log"))
    size = log.stat().st_size
    world.produce([ERROR] * 2)
    assert world.minute(spark) is not None
    cut(world, 0, log, size)
    assert world.end(0, read_committed=True) == 3

    assert reasons(world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]
    assert losses(world) == [(0, 3, 5, "truncated", "open")]
    world.produce([LATER] * 4)
    assert reasons(world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]

    accept(world)
    planned = world.plan()
    assert planned.blocks == ()
    assert world.run(planned_id(planned), spark).committed
    assert world.counts() == {"2017-07-30 14:09": 5, "2017-07-30 15:00": 2}
    assert world.offsets()[0] == (0, 7)
    assert world.audit().holds


def test_an_accepted_truncation_waits_until_the_partition_has_grown(world: World) -> None:
    """Below the committed offset there is nothing to read and no second decision."""
    count_past_the_end(world, 9)
    accept(world)
    assert world.plan().blocks == ()
    world.produce([ERROR] * 2)
    assert world.plan() == Planned(
        pipeline=world.name, batches=(), resumed=False, blocks=(), abandoned=()
    )
    world.produce([ERROR] * 4)
    planned = world.plan()
    assert planned.batch is not None
    assert [str(s.range) for s in planned.batch.segments] == [f"{world.topic}/0 [9, 11)"]


def count_past_the_end(world: World, next_offset: int) -> None:
    """The ledger has counted past Kafka's end at 5, and a plan has recorded the truncation."""
    world.plan()
    world.produce([ERROR] * 5)
    set_position(world, next_offset)
    assert reasons(world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]


def set_position(world: World, next_offset: int) -> None:
    """Set the first partition's committed offset."""
    world.execute(
        "update partition_offset o join topic_incarnation i using (incarnation_id)"
        " set o.next_offset = %s where i.pipeline = %s and o.partition_id = 0",
        (next_offset, world.name),
    )


def test_an_accepted_truncation_says_nothing_of_a_later_one(
    world: World, spark: "SparkSession"
) -> None:
    """Once counting has passed it, an end before the committed offset is a new truncation."""
    count_past_the_end(world, 9)
    accept(world)
    world.produce([ERROR] * 7)
    assert world.minute(spark) is not None
    assert world.offsets()[0] == (0, 12)
    set_position(world, 15)
    assert reasons(world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]
    assert losses(world)[-1] == (0, 12, 15, "truncated", "open")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ("from_offset = 4", (0, 4, 9, "truncated", "open")),
        ("cause = 'expired'", (0, 5, 9, "expired", "open")),
    ],
    ids=["further", "another cause"],
)
def test_a_loss_that_has_become_another_is_another_decision(
    world: World, change: str, left: tuple[int, int, int, str, str]
) -> None:
    """Only the loss that was shown is accepted."""
    count_past_the_end(world, 9)
    with world.database.transaction(read_only=True) as tx:
        seen = find_losses(tx, world.name, only_open=True)
    world.execute(
        "update lost_range l join topic_incarnation i using (incarnation_id)"
        f" set l.{change} where i.pipeline = %s",
        (world.name,),
    )
    with pytest.raises(UsageError, match="not what you saw"):
        world.database.run(
            lambda tx: accept_losses(tx, world.name, seen, by="an operator", reason="a test"),
        )
    assert losses(world) == [left]


def test_a_new_topic_whose_start_has_not_come_leaves_the_others_alone(
    world: World, spark: "SparkSession"
) -> None:
    """The new topic's first offset is unknown; the other topics are counted."""
    world.produce([ERROR] * 2)
    assert world.minute(spark) is not None
    world.produce([ERROR] * 3)
    world.create_topic(1, f"{world.topic}-new")
    start = datetime.now(UTC) + timedelta(hours=1)
    world.configure(topics=[world.topic, f"{world.topic}-new"], start=start.isoformat())
    planned = world.plan()
    assert [b.reason for b in planned.blocks] == [BlockReason.START_IN_FUTURE]
    assert world.run(planned_id(planned), spark).committed
    assert world.counts() == {"2017-07-30 14:09": 5}


def test_a_start_in_the_future_alone_has_an_error_of_its_own(world: World) -> None:
    """Nothing is recorded, and the exit code is that of an operator's decision."""
    from tally.planning.blocks import blocked_error  # noqa: PLC0415

    world.configure(start=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    world.produce([ERROR])
    planned = world.plan()
    assert planned.batch is None
    assert isinstance(blocked_error(world.name, planned.blocks), StartInFutureError)
    assert world.offsets() == {}


def test_a_timestamp_that_spark_cannot_hold_is_named_with_a_way_out(
    world: World, spark: "SparkSession"
) -> None:
    """The runbook's steps: count up to the record, delete it, accept the loss of one offset."""
    world.delete_topic()
    world.create_topic(1, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    world.produce([ERROR, ERROR])
    producer = world.producer()
    producer.produce(world.topic, value=ERROR.encode(), partition=0, timestamp=2**63 // 1000 + 1)
    assert producer.flush(60) == 0
    world.produce([ERROR])
    batch_id = planned_id(world.plan())
    with pytest.raises(RecordTimestampError, match=r"partition 0 offset 2 .*9223372036854776"):
        world.run(batch_id, spark)
    assert world.counts() == {}
    abandon(world.context(), AbandonRequest(batch_id=batch_id, reason="a test"))
    world.configure(max_records_per_partition=2)
    world.minute(spark)
    world.delete_records(0, before=3)
    assert reasons(world.plan()) == [(0, BlockReason.RECORDS_LOST)]
    assert [(start, until) for _, start, until, *_ in losses(world)] == [(2, 3)]
    accept(world)
    world.minute(spark)
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.audit().holds
