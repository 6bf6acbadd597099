"""Batches from plan to commit: with Spark where its read is the point, and else without it."""

import os
import signal
import subprocess
from collections import Counter
from contextlib import closing
from functools import reduce
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from tally import model
from tally.errors import (
    DataLossError,
    FencedError,
    MalformedFloodError,
    ReadError,
    RecordTimestampError,
)
from tally.kafka.records import whole_ranges
from tally.spark.reading import read_ranges, records_frame
from tests.minute import steps
from tests.minute.steps import AT, ERROR
from tests.minute.test_labels import labelled, line
from tests.spark_submit import job, spark_environment
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

INFO = "2017-07-30 14:09:09 INFO all is well"


def test_lines_are_counted_by_labels_and_filtered_and_their_bytes_added_up(
    world: World, spark: SparkSession
) -> None:
    """Labels are cut at code points; invalid bytes, blanks and case stay as they are read."""
    labelled(
        world,
        labels=["service", "level", "partition"],
        label_max_chars=6,
        levels=["ERROR", "WARN"],
        filter={"service": ["car*", "shop", "äöü*"], "text": ["message"]},
        measure="bytes",
        continuation_lines="unmatched",
    )
    counted = [
        (line("cart"), "cart", "ERROR"),
        (line("cart", "WARN"), "cart", "WARN"),
        (line("cart "), "cart ", "ERROR"),
        (line("car\x00t"), "car\x00t", "ERROR"),
        (line(b"cart\xff"), "cart\ufffd", "ERROR"),
        (line("car\U0001d11e-and-more"), "car\U0001d11e-a", "ERROR"),
        (line("äöüäöü1"), "äöüäöü", "ERROR"),
        (line("äöüäöü2"), "äöüäöü", "ERROR"),
        (line("shop"), "shop", "ERROR"),
    ]
    passed_over = [line("Shop"), line("xcart"), line("cart", "INFO"), line("cart")[:-8]]
    continuation, malformed = b"\tat org.example.Shop.sell", line("cart").replace(b"-07-", b"-13-")
    read = [*(value for value, *_ in counted), *passed_over, continuation, malformed]
    world.produce(read, 1)
    assert world.minute(spark) is not None
    lines, octets = Counter(), Counter()
    for value, service, level in counted:
        lines[service, level, "1"] += 1
        octets[service, level, "1"] += len(value)
    found = world.rows(f"select * from `{world.name}`")
    keyed = {(row["service"], row["level"], row["partition"]): row for row in found}
    assert {key: row["log_count"] for key, row in keyed.items()} == lines
    assert {key: row["log_bytes"] for key, row in keyed.items()} == octets
    (segment,) = world.segments()
    assert (segment["matched"], segment["unmatched"], segment["malformed"]) == (9, 5, 1)
    assert segment["continuations"] == 1
    assert world.audit().holds


def test_what_is_odd_is_counted_or_kept(world: World, spark: SparkSession) -> None:
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
    world.produce([*counted, *passed_over])
    world.produce(malformed, 1)
    assert world.minute(spark) is not None
    expected = Counter(
        bytes(line, "utf-8")[:16].decode() if isinstance(line, str) else line[:16].decode()
        for line in counted
    )
    assert world.counts() == dict(sorted(expected.items()))
    assert [(d["partition_id"], d["record_offset"], d["value"]) for d in world.dead_letters()] == [
        (1, at, line.encode() if isinstance(line, str) else line)
        for at, line in enumerate(malformed)
    ]
    totals = [(s["matched"], s["unmatched"], s["malformed"]) for s in world.segments()]
    assert totals == [(9, 4, 0), (0, 0, 9)]
    assert world.offsets() == {0: (0, 13), 1: (0, 9)}
    assert world.audit().holds


def test_a_line_of_ten_megabytes_is_counted_and_its_like_is_kept_in_part(
    world: World, spark: SparkSession
) -> None:
    world.create_topic(1, f"{world.topic}-large", **{"max.message.bytes": "20000000"})
    world.configure(topics=[f"{world.topic}-large"], dead_letter_max_bytes=1000)
    filling = "x" * 10_000_000
    world.produce([ERROR + filling, filling], topic=f"{world.topic}-large")
    assert world.minute(spark) is not None
    assert world.counts() == {AT: 1}
    (letter,) = world.dead_letters()
    assert (len(letter["value"]), letter["value_bytes"]) == (1000, 10_000_000)


def test_two_runs_at_once_count_once(world: World) -> None:
    world.produce([ERROR] * 3)
    batch_id = world.planned().batch_id

    def run() -> bool:
        try:
            return world.run(batch_id).committed
        except FencedError:
            return False

    assert sorted(steps.at_once(run, run)) == [False, True]
    assert steps.audited(world) == {AT: 3}


def test_a_run_that_wakes_up_after_its_successors_is_fenced(world: World) -> None:
    """The run is stopped before its commit; a retry and two later batches commit first."""
    world.produce([ERROR] * 3)
    batch_id = world.planned().batch_id

    def overtake() -> None:
        assert world.run(batch_id).committed
        for _ in range(2):
            steps.count(world, [ERROR])

    assert not steps.behind_the_read(world, overtake).run(batch_id).committed
    assert steps.audited(world) == {AT: 5}


def test_a_backlog_is_counted_batch_by_batch(world: World) -> None:
    world.configure(max_records_per_partition=400)
    world.produce([ERROR, INFO] * 500, 0)
    world.produce([ERROR] * 100, 1)
    batches = 0
    while world.minute() is not None:
        batches += 1
    assert batches == 3
    assert steps.audited(world) == {AT: 600}


def test_many_minutes_stream_into_one_commit(world: World, spark: SparkSession) -> None:
    """Each distinct minute becomes a row, in one transaction.

    Spark splits the partition into several tasks; the union of their ranges is the plan, exactly.
    """
    minutes = [
        f"2001-{month:02}-{day:02} {hour:02}:00"
        for month in range(1, 13)
        for day in range(1, 29)
        for hour in range(24)
    ]
    world.configure(reader={"minPartitions": 5})
    world.produce([f"{minute}:00 ERROR x" for minute in minutes] + ["bad"] * 333)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    assert world.minute(spark) is not None
    jobs = [tracker.getJobInfo(job) for job in set(tracker.getJobIdsForGroup()) - before]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert 5 in [stage.numTasks for stage in stages if stage]
    assert steps.audited(world) == dict.fromkeys(minutes, 1)
    assert len(world.dead_letters()) == 333


def test_a_hole_in_the_range_is_data_loss(world: World, spark: SparkSession) -> None:
    """A transaction's marker takes an offset without a record: dense topics have none."""
    steps.produce_transaction(world, [ERROR] * 3)
    world.produce([ERROR])
    batch_id = world.planned().batch_id
    with pytest.raises(DataLossError, match=r"4 records of 5.*sparse"):
        world.run(batch_id, spark)
    assert world.counts() == {}
    assert world.offsets()[0] == (0, 0)


def test_a_sparse_topic_may_have_holes(world: World, spark: SparkSession) -> None:
    """Markers are skipped, aborted records are not counted, and a batch may end on a marker.

    A range with only aborted records counts nothing, and the committed offsets move.
    """
    world.configure(offsets="sparse")
    steps.produce_transaction(world, [ERROR] * 5, commit=False)
    ran = world.minute(spark)
    assert ran is not None
    assert ran.committed
    assert world.counts() == {}
    assert world.offsets()[0] == (0, 6)
    steps.produce_transaction(world, [ERROR] * 3)
    steps.produce_transaction(world, [ERROR] * 5, commit=False)
    assert world.minute(spark) is not None
    assert steps.audited(world) == {AT: 3}
    assert world.offsets()[0] == (0, 16)
    assert world.minute(spark) is None


def test_small_ranges_are_read_together_as_spark_reads_them(
    world: World, spark: SparkSession
) -> None:
    """Wherever they begin and end among committed, aborted and open transactions."""
    world.produce([ERROR, ERROR])
    producer = world.producer(**{"transactional.id": str(uuid4())})
    for value, key, stamp in ((b"", b"k", 1), (b"x", None, 1_500_000_000_123), (None, b"", 2)):
        world.produce([value], fields={"key": key, "timestamp": stamp})
    steps.produce_transaction(world, [ERROR] * 2)  # with its marker 5 to 7
    steps.produce_transaction(world, [ERROR] * 2, commit=False)  # 8 to 10
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.topic, value=ERROR, partition=0)
    assert producer.flush(30) == 0
    columns = ("topic", "partition", "offset", "timestamp", "key", "value")
    for level, end in (("read_committed", 11), ("read_uncommitted", 12)):
        pipeline = world.settings.pipeline(world.name).model_copy(update={"isolation_level": level})
        read: dict[str, list[DataFrame]] = {"by Spark": [], "together": []}
        place = model.TopicPartition(topic=world.topic, partition=0)
        for first, until in ((0, end), (1, 4), (2, 5), (5, 7), (6, 8), (7, 9), (9, end), (10, 11)):
            ranges = [model.OffsetRange(partition=place, from_offset=first, until_offset=until)]
            by_spark = read_ranges(spark, world.settings.kafka, pipeline, ranges)
            read["by Spark"].append(by_spark.select(*columns))
            (found,) = whole_ranges(world.settings.kafka, ranges, pipeline.reads_committed)
            assert list(found) == ranges
            read["together"].append(records_frame(spark, found).select(*columns))
        rows = {how: reduce(DataFrame.unionAll, frames).collect() for how, frames in read.items()}
        assert rows["together"] == rows["by Spark"]
        assert len(rows["together"]) > end
    producer.abort_transaction(30)


def test_a_compacted_range_is_counted_as_far_as_it_is_there(
    world: World, spark: SparkSession
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
            producer.produce(topic, key=key, value=ERROR, partition=0)
            written += 1
        assert producer.flush(60) == 0
        there = held(world, topic, written)
        return len(there) == written - 3

    wait_until(compacted, timeout_s=300, pause_s=0.3)
    assert world.minute(spark) is not None
    assert world.counts() == {AT: len(there)}
    (segment,) = world.segments()
    assert (segment["from_offset"], segment["until_offset"]) == (0, written)
    assert (segment["records"], segment["first_offset"]) == (len(there), min(there))
    assert min(there) > 0
    assert world.audit().holds


def held(world: World, topic: str, end: int) -> list[int]:
    """The offsets before the end at which the broker serves a record."""
    servers = world.settings.kafka.bootstrap_servers
    offsets: list[int] = []
    with closing(Consumer({"bootstrap.servers": servers, "group.id": world.name})) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while end - 1 not in offsets:
            message = consumer.poll(30)
            assert message is not None
            assert not message.error()
            offsets.append(message.offset())
    return offsets


def test_records_deleted_before_the_read_are_data_loss(world: World, spark: SparkSession) -> None:
    world.produce([ERROR] * 5)
    batch_id = world.planned().batch_id
    world.delete_records(0, 3)
    with pytest.raises(DataLossError):
        world.run(batch_id, spark)
    assert world.counts() == {}


def test_a_topic_recreated_under_the_read_is_data_loss(world: World) -> None:
    """The new topic holds the planned offsets too; only its id shows the difference."""
    world.produce([ERROR] * 5)
    batch_id = world.planned().batch_id
    world.delete_topic()
    world.create_topic(2)
    world.produce([INFO, ERROR] * 10)
    with pytest.raises(DataLossError, match="planned with topic id"):
        world.run(batch_id)
    assert world.counts() == {}


def test_a_read_that_cannot_be_served_is_retryable(world: World, spark: SparkSession) -> None:
    world.produce([ERROR])
    batch_id = world.planned().batch_id
    world.configure(
        reader={
            "kafka.security.protocol": "SSL",
            "kafka.default.api.timeout.ms": "3000",
            "kafka.request.timeout.ms": "2000",
            "kafkaConsumer.pollTimeoutMs": "3000",
            "fetchOffset.numRetries": "1",
        }
    )
    with pytest.raises(ReadError, match=r"could not read .*TimeoutException"):
        world.run(batch_id, spark)
    world.configure(reader={})
    assert world.run(batch_id, spark).committed
    assert world.counts() == {AT: 1}


def test_a_flood_of_malformed_lines_stops_and_asks(world: World) -> None:
    world.configure(max_malformed_per_batch=3)
    world.produce(["what is this"] * 4)
    batch_id = world.planned().batch_id
    with pytest.raises(MalformedFloodError, match=r"4 of 4 records"):
        world.run(batch_id)
    assert world.offsets()[0] == (0, 0)
    world.configure(max_malformed_per_batch=4)
    assert world.run(batch_id).committed
    assert len(world.dead_letters()) == 4


def test_the_offsets_are_mirrored_for_lag_tools(world: World) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415

    world.produce([ERROR] * 3)
    assert world.minute() is not None
    group = f"tally-{world.name}"
    request = [ConsumerGroupTopicPartitions(group)]
    answer = world.admin.list_consumer_group_offsets(request)[group].result(30)
    mirrored = {p.partition: p.offset for p in answer.topic_partitions}
    assert mirrored == {0: 3, 1: 0}


def test_a_timestamp_that_spark_cannot_hold_is_named_with_a_way_out(
    world: World, spark: SparkSession
) -> None:
    """The runbook's steps: count up to the record, delete it, accept the loss of one offset."""
    world.delete_topic()
    world.create_topic(1, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    world.produce([ERROR, ERROR])
    producer = world.producer()
    producer.produce(world.topic, value=ERROR.encode(), partition=0, timestamp=2**63 // 1000 + 1)
    assert producer.flush(60) == 0
    world.produce([ERROR])
    batch_id = world.planned().batch_id
    with pytest.raises(RecordTimestampError, match=r"partition 0 offset 2 .*9223372036854776"):
        world.run(batch_id, spark)
    steps.abandoned(world, batch_id)
    world.configure(max_records_per_partition=2)
    world.minute()
    world.delete_records(0, before=3)
    world.plan()
    assert steps.losses(world) == [(0, 2, 3, "expired", "open")]
    steps.accept(world)
    world.minute(spark)
    assert steps.audited(world) == {AT: 3}


def test_a_killed_job_is_run_again_and_counts_once(world: World) -> None:
    """SIGKILL of the driver in the middle of its commit: the next run has the same ranges."""
    world.produce([ERROR] * 300)
    batch_id = world.planned().batch_id
    (segment,) = world.segments()
    with world.connect() as other, other.cursor() as cursor:
        # The job's commit waits for this row, in the middle of its transaction.
        cursor.execute(
            f"insert into segment_count values (%s, '{AT}:00', 1)", (segment["segment_id"],)
        )
        driver = subprocess.Popen(
            job(world.stack, batch_id),
            env=spark_environment(TALLY_CONFIG=str(world.config)),
            start_new_session=True,
        )
        waiting = f"insert into `segment_count`%({segment['segment_id']},%"
        wait_until(lambda: steps.is_under_way(world, waiting))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(30)
        other.rollback()
    assert world.counts() == {}
    assert world.run(batch_id).committed
    assert world.counts() == {AT: 300}
    (again,) = world.segments()
    ends = ("from_offset", "until_offset")
    assert [again[end] for end in ends] == [segment[end] for end in ends]
    assert world.audit().holds
