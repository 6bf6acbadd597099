"""Batches from plan to commit on real Kafka, MySQL and Spark."""

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tally.errors import (
    DataLossError,
    FencedError,
    MalformedFloodError,
    ReadError,
    UnknownBatchError,
)
from tally.pipeline.run import run_batch
from tally.testing.kafka import DisturbedKafka
from tests.spark_submit import job, spark_environment
from tests.waiting import wait_until
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ERROR = "2017-07-30 14:09:08 ERROR some message"
INFO = "2017-07-30 14:09:09 INFO all is well"


def planned_id(world: World) -> int:
    """The id of the batch that is open or newly planned."""
    batch = world.plan().batch
    assert batch is not None
    return batch.batch_id


def test_lines_become_counts(world: World, spark: "SparkSession") -> None:
    """Error lines are counted per minute, other levels are not; offsets are committed."""
    world.produce([ERROR, INFO, ERROR, "2017-07-30 14:10:00 ERROR later"], 0)
    world.produce([ERROR, "garbage"], 1)
    ran = world.minute(spark)
    assert ran is not None
    assert ran.committed
    assert world.counts() == {"2017-07-30 14:09": 3, "2017-07-30 14:10": 1}
    assert world.offsets() == {0: (0, 4), 1: (0, 2)}
    assert [(d["partition_id"], d["record_offset"], d["value"]) for d in world.dead_letters()] == [
        (1, 1, b"garbage")
    ]
    assert world.audit().holds


def test_what_is_odd_is_counted_or_kept(world: World, spark: "SparkSession") -> None:
    """Each unusual record is counted, or kept as a dead letter with its bytes; none is lost."""
    counted = [
        "2016-02-29 10:00:00 ERROR a leap day",
        "9999-12-31 23:59:59 ERROR far in the future",
        "1000-01-01 00:00:00 ERROR long ago",
        "2026-03-29 02:30:00 ERROR in the gap of a zone's summer time",
        b"2017-07-30 14:09:08 ERROR \xff\xfe no UTF-8",
        "2017-07-30 14:09:08 ERROR carriage return\r\n",
        "2017-07-30 14:09:08 ERROR\r\n",
        "2017-07-30 14:09:08 ERROR",
        "2017-07-30 14:09:08 ERROR first line\n2017-07-30 14:10:00 ERROR its second",
    ]
    passed_over = [
        INFO,
        "2017-07-30 14:09:08 FROBNICATE unknown level",
        "2017-07-30 14:09:08 INFO the word ERROR in a message",
        "2017-07-30 14:09:08 ERRORS is another word",
    ]
    malformed: list[str | bytes | None] = [
        None,
        "",
        "no time at all",
        "2017-13-30 14:09:08 ERROR month 13",
        "2017-02-29 14:09:08 ERROR no leap year",
        "2017-07-30 24:00:00 ERROR hour 24",
        "0000-07-30 14:09:08 ERROR year 0000",
        b"\xff\xfe\x00\x01",
        "2017-07-30 14:09:08",
    ]
    world.produce([*counted, *passed_over, *malformed])
    assert world.minute(spark) is not None
    expected = Counter(
        bytes(line, "utf-8")[:16].decode() if isinstance(line, str) else line[:16].decode()
        for line in counted
    )
    assert world.counts() == dict(sorted(expected.items()))
    assert [d["value"] for d in world.dead_letters()] == [
        line.encode() if isinstance(line, str) else line for line in malformed
    ]
    (segment,) = world.segments()
    assert (segment["matched"], segment["unmatched"], segment["malformed"]) == (9, 4, 9)
    assert world.audit().holds


def test_a_line_of_ten_megabytes_is_counted_and_its_like_is_kept_in_part(
    world: World, spark: "SparkSession"
) -> None:
    """A large line counts; of a large malformed record the first bytes and the length are kept."""
    world.create_topic(1, f"{world.topic}-large", **{"max.message.bytes": "20000000"})
    world.configure(topics=[f"{world.topic}-large"], dead_letter_max_bytes=1000)
    filling = "x" * 10_000_000
    world.produce([ERROR + filling, filling], topic=f"{world.topic}-large")
    assert world.minute(spark) is not None
    assert world.counts() == {"2017-07-30 14:09": 1}
    (letter,) = world.dead_letters()
    assert (len(letter["value"]), letter["value_bytes"]) == (1000, 10_000_000)


def test_a_batch_that_is_run_twice_counts_once(world: World, spark: "SparkSession") -> None:
    """The second run finds it committed, starts no Spark and changes nothing."""
    world.produce([ERROR] * 3)
    batch_id = planned_id(world)
    assert world.run(batch_id, spark).committed
    # A context without a session: a reader that is opened is an error.
    assert not run_batch(world.context(), batch_id).committed
    assert world.counts() == {"2017-07-30 14:09": 3}


def test_two_runs_at_once_count_once(world: World, spark: "SparkSession") -> None:
    """Of two runs of one batch one commits; the other is fenced or finds it done."""
    world.produce([ERROR] * 3)
    batch_id = planned_id(world)
    outcomes: list[str] = []
    barrier = threading.Barrier(2)

    def run() -> None:
        barrier.wait()
        try:
            outcomes.append("committed" if world.run(batch_id, spark).committed else "done")
        except FencedError:
            outcomes.append("fenced")

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 2
    assert outcomes.count("committed") == 1
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.audit().holds


def test_a_run_that_wakes_up_after_its_successors_is_fenced(
    world: World, spark: "SparkSession"
) -> None:
    """The run is stopped before its commit; a retry and two later batches commit first."""
    world.produce([ERROR] * 3)
    batch_id = planned_id(world)

    def overtake() -> None:
        assert world.run(batch_id, spark).committed
        for _ in range(2):
            world.produce([ERROR])
            assert world.minute(spark) is not None

    # A run asks Kafka when it has read.
    overtaken = world.through(kafka=DisturbedKafka(world.context().kafka, before=overtake))
    assert not overtaken.run(batch_id, spark).committed
    assert world.counts() == {"2017-07-30 14:09": 5}
    assert world.audit().holds


def test_a_backlog_is_counted_batch_by_batch(world: World, spark: "SparkSession") -> None:
    """After a long stop everything is counted once, in bounded batches."""
    world.configure(max_records_per_partition=400)
    world.produce([ERROR, INFO] * 500, 0)
    world.produce([ERROR] * 100, 1)
    batches = 0
    while world.minute(spark) is not None:
        batches += 1
    assert batches == 3
    assert world.counts() == {"2017-07-30 14:09": 600}
    assert world.audit().holds


def test_a_partition_that_is_split_into_spark_tasks_is_read_whole(
    world: World, spark: "SparkSession"
) -> None:
    """The union of the tasks' ranges is the plan, exactly."""
    world.configure(reader={"minPartitions": 5})
    world.produce([ERROR, INFO, "bad"] * 333)
    assert world.minute(spark) is not None
    assert world.counts() == {"2017-07-30 14:09": 333}
    assert len(world.dead_letters()) == 333
    assert world.audit().holds


def test_many_minutes_stream_into_one_commit(world: World, spark: "SparkSession") -> None:
    """Each distinct minute becomes a row, in one transaction."""
    minutes = [
        f"{year}-{month:02}-{day:02} {hour:02}:{minute:02}"
        for year in (2001, 2002)
        for month in range(1, 13)
        for day in range(1, 29)
        for hour in range(24)
        for minute in (0, 30)
    ]
    world.produce([f"{minute}:00 ERROR x" for minute in minutes])
    assert world.minute(spark) is not None
    assert world.counts() == dict.fromkeys(minutes, 1)
    assert world.audit().holds


def test_a_hole_in_the_range_is_data_loss(world: World, spark: "SparkSession") -> None:
    """A transaction's marker takes an offset without a record: dense topics have none."""
    produce_transaction(world, [ERROR] * 3)
    world.produce([ERROR])
    batch_id = planned_id(world)
    with pytest.raises(DataLossError, match=r"4 records of 5.*sparse"):
        world.run(batch_id, spark)
    assert world.counts() == {}
    assert world.offsets()[0] == (0, 0)


def test_a_sparse_topic_may_have_holes(world: World, spark: "SparkSession") -> None:
    """Markers are skipped, aborted records are not counted, and a batch may end on a marker."""
    world.configure(offsets="sparse")
    produce_transaction(world, [ERROR] * 3)
    produce_transaction(world, [ERROR] * 5, commit=False)
    assert world.minute(spark) is not None
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.offsets()[0] == (0, 10)
    assert world.audit().holds


def test_a_range_of_markers_alone_commits_an_empty_result(
    world: World, spark: "SparkSession"
) -> None:
    """A range with only aborted records counts nothing, and the committed offsets move."""
    world.configure(offsets="sparse")
    produce_transaction(world, [ERROR] * 5, commit=False)
    ran = world.minute(spark)
    assert ran is not None
    assert ran.committed
    assert world.counts() == {}
    assert world.offsets()[0] == (0, 6)
    assert world.minute(spark) is None


def produce_transaction(world: World, lines: list[str], *, commit: bool = True) -> None:
    """Write lines in one Kafka transaction."""
    producer = world.producer(**{"transactional.id": f"{world.name}-{time.monotonic_ns()}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for line in lines:
        producer.produce(world.topic, value=line, partition=0)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)
    world.wait_for_markers()


def test_records_deleted_before_the_read_are_data_loss(world: World, spark: "SparkSession") -> None:
    """Retention between plan and read: an error that says so, and nothing is counted."""
    world.produce([ERROR] * 5)
    batch_id = planned_id(world)
    world.delete_records(0, 3)
    with pytest.raises(DataLossError):
        world.run(batch_id, spark)
    assert world.counts() == {}


def test_a_topic_recreated_under_the_read_is_data_loss(world: World, spark: "SparkSession") -> None:
    """The new topic holds the planned offsets too; only its id shows the difference."""
    world.produce([ERROR] * 5)
    batch_id = planned_id(world)
    world.delete_topic()
    world.create_topic(2)
    world.produce([INFO, ERROR] * 10)
    with pytest.raises(DataLossError, match="planned with topic id"):
        world.run(batch_id, spark)
    assert world.counts() == {}


def test_a_read_that_cannot_be_served_is_retryable(world: World, spark: "SparkSession") -> None:
    """Spark's reader cannot reach the broker: the cause is named, the batch stays planned."""
    world.produce([ERROR])
    batch_id = planned_id(world)
    world.configure(
        reader={
            "kafka.security.protocol": "SSL",
            "kafka.default.api.timeout.ms": "3000",
            "kafka.request.timeout.ms": "2000",
            "kafkaConsumer.pollTimeoutMs": "3000",
            "fetchOffset.numRetries": "1",
        }
    )
    with pytest.raises((ReadError, DataLossError)):
        world.run(batch_id, spark)
    world.configure(reader={})
    assert world.run(batch_id, spark).committed
    assert world.counts() == {"2017-07-30 14:09": 1}


def test_a_flood_of_malformed_lines_stops_and_asks(world: World, spark: "SparkSession") -> None:
    """With a wrong line format nothing is committed; with a larger limit everything is kept."""
    world.configure(max_malformed_per_batch=3)
    world.produce(["what is this"] * 4)
    batch_id = planned_id(world)
    with pytest.raises(MalformedFloodError, match=r"4 of 4 records"):
        world.run(batch_id, spark)
    assert world.offsets()[0] == (0, 0)
    world.configure(max_malformed_per_batch=4)
    assert world.run(batch_id, spark).committed
    assert len(world.dead_letters()) == 4


def test_several_levels_and_another_format_are_counted(world: World, spark: "SparkSession") -> None:
    """A built-in format and two levels are counted."""
    world.configure(line_format="log4j", levels=["ERROR", "FATAL"])
    world.produce(
        [
            "2015-10-18 18:01:47,978 INFO [main] org.apache.hadoop.Foo: Created",
            "2015-10-18 18:01:48,963 ERROR [main] org.apache.hadoop.Foo: Failed",
            "2015-10-18 18:02:48,963 FATAL [main] org.apache.hadoop.Foo: Dead",
        ]
    )
    assert world.minute(spark) is not None
    assert world.counts() == {"2015-10-18 18:01": 1, "2015-10-18 18:02": 1}


def test_an_unknown_batch_is_named(world: World, spark: "SparkSession") -> None:
    """The error names a batch id that is not in the ledger."""
    with pytest.raises(UnknownBatchError, match="999999999"):
        world.run(999_999_999, spark)


def test_the_offsets_are_mirrored_for_lag_tools(world: World, spark: "SparkSession") -> None:
    """The consumer group tally-<pipeline> shows the committed offsets."""
    from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415

    world.produce([ERROR] * 3)
    assert world.minute(spark) is not None
    group = f"tally-{world.name}"
    request = [ConsumerGroupTopicPartitions(group)]
    answer = world.admin.list_consumer_group_offsets(request)[group].result(30)
    mirrored = {p.partition: p.offset for p in answer.topic_partitions}
    assert mirrored == {0: 3, 1: 0}


@pytest.mark.parametrize("point", ["read", "commit"])
def test_a_killed_job_is_run_again_and_counts_once(
    world: World, spark: "SparkSession", point: str
) -> None:
    """SIGKILL of the driver before or during the commit: the next run has the same ranges."""
    world.produce([ERROR] * 300)
    batch_id = planned_id(world)
    before = [(s["from_offset"], s["until_offset"]) for s in world.segments()]
    with world.connect() as other, other.cursor() as cursor:
        if point == "commit":
            # The job's commit waits for this row, in the middle of its transaction.
            cursor.execute(
                "insert into segment_count select segment_id, '2017-07-30 14:09:00', 1"
                " from segment where batch_id = %s",
                (batch_id,),
            )
        driver = start_job(world, batch_id)
        wait_until(lambda: is_at(world, batch_id, point))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(30)
        other.rollback()
    assert world.counts() == {}
    assert world.run(batch_id, spark).committed
    assert world.counts() == {"2017-07-30 14:09": 300}
    assert [(s["from_offset"], s["until_offset"]) for s in world.segments()] == before
    assert world.audit().holds


def start_job(world: World, batch_id: int) -> "subprocess.Popen[bytes]":
    """The Spark entry point by spark-submit, in a process group of its own."""
    return subprocess.Popen(
        job(world.stack, batch_id),
        env=spark_environment(TALLY_CONFIG=str(world.config)),
        start_new_session=True,
    )


def is_at(world: World, batch_id: int, point: str) -> bool:
    """Whether the job has claimed the batch, or waits for a lock inside its commit."""
    if point == "read":
        (row,) = world.rows("select attempt from batch where batch_id = %s", (batch_id,))
        return bool(row["attempt"])
    waiting = world.rows(
        "select 1 from information_schema.processlist where user = %s"
        " and info like 'insert into `segment_count`%%'",
        (world.settings.mysql.user,),
    )
    return bool(waiting)
