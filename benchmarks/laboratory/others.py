"""Ways to deliver that are known from elsewhere, as they are commonly written.

Each of them goes on as such a program does when it is started again: from offsets in the database,
from a checkpoint, or from where a consumer begins that has no offsets.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from benchmarks.laboratory.bench import END, START, Bench, by_minute, counts_of, then_fail
from benchmarks.laboratory.faults import (
    Fault,
    batches_begun,
    begin_batch,
    behind,
    folder,
    has_struck,
    point,
)
from benchmarks.laboratory.lines import PARTITIONS, PER_BATCH
from benchmarks.laboratory.store import Store, add, move
from tally.config.loading import load_settings
from tally.spark.session import reader_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row


def _from_stored_offsets(
    bench: Bench, process: "Callable[[DataFrame, Mapping[int, int], Mapping[int, int]], None]"
) -> None:
    """Process the next lines of each partition, until there are none."""
    while True:
        starts = {**START, **bench.store.offsets()}
        if all(start == END for start in starts.values()):
            return
        begin_batch()
        frame, ends = bench.read(starts)
        process(frame, starts, ends)


def at_most_once(bench: Bench) -> None:
    """The offsets, then the counts: two transactions."""

    def process(frame: "DataFrame", _: Mapping[int, int], ends: Mapping[int, int]) -> None:
        found = counts_of(frame)
        with bench.store.transaction() as tx:
            move(tx, ends)
        point(Fault.BEFORE_WRITE, Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)
        with bench.store.transaction() as tx:
            add(tx, found)

    _from_stored_offsets(bench, process)


def at_least_once(bench: Bench) -> None:
    """The counts, then the offsets: two transactions."""

    def process(frame: "DataFrame", _: Mapping[int, int], ends: Mapping[int, int]) -> None:
        found = counts_of(frame)
        with bench.store.transaction() as tx:
            add(tx, found)
        point(Fault.BEFORE_WRITE, Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)
        with bench.store.transaction() as tx:
            move(tx, ends)

    _from_stored_offsets(bench, process)


def from_earliest(bench: Bench) -> None:
    """No offsets are stored; a consumer that is started again begins at the first line."""
    _without_offsets(bench, START)


def from_latest(bench: Bench) -> None:
    """No offsets are stored; a consumer that is started again begins at the end of the topic.

    Lines go on arriving. One batch of each partition has arrived between its end and its start.
    """
    begun = batches_begun()
    start = min(END, (begun + 1) * PER_BATCH) if begun else 0
    _without_offsets(bench, dict.fromkeys(range(PARTITIONS), start))


def _without_offsets(bench: Bench, starts: Mapping[int, int]) -> None:
    while any(start < END for start in starts.values()):
        begin_batch()
        frame, starts = bench.read(starts)
        found = counts_of(frame)
        point(Fault.BEFORE_WRITE)
        with bench.store.transaction() as tx:
            add(tx, found)
        point(Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)


def after_a_shuffle(bench: Bench) -> None:
    """Each task commits its counts and "its" offset, but a shuffle has mixed the partitions."""

    def process(frame: "DataFrame", _: Mapping[int, int], ends: Mapping[int, int]) -> None:
        grouped = frame.groupBy("log_time").count().repartition(PARTITIONS, "log_time")
        grouped.foreachPartition(partial(_commit_group, bench.store, dict(ends)))

    _from_stored_offsets(bench, process)


def _commit_group(store: Store, ends: Mapping[int, int], rows: "Iterable[Row]") -> None:
    number = _task()
    point(Fault.COPY_WROTE)
    with store.transaction() as tx:
        add(tx, {row["log_time"]: row["count"] for row in rows})
        point(Fault.BEFORE_OFFSETS)
        move(tx, {number: ends[number]})
        point(Fault.BEFORE_WRITE, Fault.STATE_LOST, Fault.CODE_CHANGED)
    behind(Fault.COPY_WROTE)
    point(Fault.TASK_WROTE, Fault.BETWEEN_TASKS, Fault.EXECUTOR_WROTE)


def without_a_check(bench: Bench) -> None:
    """Each task commits its partition, and does not look whether its offset has moved."""

    def process(frame: "DataFrame", starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        frame.foreachPartition(partial(_commit_partition, bench.store, dict(starts), dict(ends)))

    with bench.store.transaction() as tx:
        tx.executemany("insert ignore into lab_offset values (%s, %s)", sorted(START.items()))
    _from_stored_offsets(bench, process)


def _commit_partition(
    store: Store, starts: Mapping[int, int], ends: Mapping[int, int], rows: "Iterable[Row]"
) -> None:
    lines = list(rows)
    if not lines:
        return
    number = lines[0]["partition"]
    point(Fault.COPY_WROTE)
    with store.transaction() as tx:
        tx.execute(
            "update lab_offset set next_offset = %s where partition_id = %s and next_offset = %s",
            (ends[number], number, starts[number]),
        )
        point(Fault.BEFORE_WRITE)
        add(tx, {row["log_time"]: 1 for row in lines})
        point(Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)
    behind(Fault.COPY_WROTE)
    point(Fault.TASK_WROTE, Fault.BETWEEN_TASKS, Fault.EXECUTOR_WROTE)


def _task() -> int:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("this is no Spark task")
    return task.partitionId()


def streaming(bench: Bench) -> None:
    """Structured Streaming with its checkpoint; the sink adds what it gets."""
    _stream(bench, is_keyed=False)


def keyed_streaming(bench: Bench) -> None:
    """The same; the sink skips a batch whose number it has seen."""
    _stream(bench, is_keyed=True)


def _stream(bench: Bench, *, is_keyed: bool) -> None:
    settings = load_settings(bench.config)
    options = reader_options(settings.kafka, settings.pipeline(bench.pipeline))
    if not has_struck():  # later the whole backlog is one batch, as it is without this option
        options["maxOffsetsPerTrigger"] = str(PARTITIONS * PER_BATCH)

    def process(frame: "DataFrame", number: int) -> None:
        begin_batch()
        found = counts_of(by_minute(then_fail(frame)))
        point(Fault.BEFORE_WRITE)
        with bench.store.transaction() as tx:
            if is_keyed and not tx.execute("insert ignore into lab_batch values (%s)", (number,)):
                return
            add(tx, found)
        point(Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)

    records: Any = bench.spark.readStream.format("kafka").options(**options)
    query = (
        records.option("subscribe", bench.topic)
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(folder() / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
