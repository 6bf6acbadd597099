"""The methods by name: Tally's deliveries, and ways that are known from elsewhere.

The latter are as they are commonly written. Each of them goes on as such a program does when it is
started again: from offsets in the database, from a checkpoint, or from where a consumer begins that
has no offsets.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext

from benchmarks.laboratory import tallys
from benchmarks.laboratory.bench import (
    END,
    PARTITIONS,
    PER_BATCH,
    START,
    Bench,
    by_minute,
    counts_of,
    then_fail,
)
from benchmarks.laboratory.faults import (
    OF_TASKS,
    Fault,
    batches_begun,
    begin_batch,
    behind,
    folder,
    has_struck,
    point,
)
from benchmarks.peers.store import Store
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


def two_transactions(bench: Bench, *, offsets_first: bool) -> None:
    """Offsets and counts in two transactions: the order only chooses the error."""
    store = bench.store

    def process(frame: "DataFrame", _: Mapping[int, int], ends: Mapping[int, int]) -> None:
        found = counts_of(frame)
        writes = [partial(store.add, counts=found), partial(store.move, ends=ends)]
        first, second = reversed(writes) if offsets_first else writes
        with store.transaction() as tx:
            first(tx)
        point(Fault.BEFORE_WRITE, Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)
        with store.transaction() as tx:
            second(tx)

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
            bench.store.add(tx, found)
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
        store.add(tx, {row["log_time"]: row["count"] for row in rows})
        point(Fault.BEFORE_OFFSETS)
        store.move(tx, {number: ends[number]})
        point(Fault.BEFORE_WRITE, Fault.STATE_LOST, Fault.CODE_CHANGED)
    behind(Fault.COPY_WROTE)
    point(Fault.TASK_WROTE, Fault.BETWEEN_TASKS, Fault.EXECUTOR_WROTE)


def without_a_check(bench: Bench) -> None:
    """Each task commits its partition, and does not look whether its offset has moved."""

    def process(frame: "DataFrame", starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        frame.foreachPartition(partial(_commit_partition, bench.store, dict(starts), dict(ends)))

    with bench.store.transaction() as tx:
        bench.store.move(tx, {**START, **bench.store.offsets()})
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
            "update lab_offsets set next_offset = %s where number = %s and next_offset = %s",
            (ends[number], number, starts[number]),
        )
        point(Fault.BEFORE_WRITE)
        store.add(tx, {row["log_time"]: 1 for row in lines})
        point(Fault.BEFORE_OFFSETS, Fault.STATE_LOST, Fault.CODE_CHANGED)
    behind(Fault.COPY_WROTE)
    point(Fault.TASK_WROTE, Fault.BETWEEN_TASKS, Fault.EXECUTOR_WROTE)


def _task() -> int:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("this is no Spark task")
    return task.partitionId()


def stream(bench: Bench, *, is_keyed: bool) -> None:
    """Structured Streaming with its checkpoint; the sink adds what it gets.

    A keyed sink skips a batch whose number it has seen.
    """
    settings = load_settings(bench.config)
    options = reader_options(settings.kafka, settings.pipeline(bench.pipeline))
    if not has_struck():  # later the whole backlog is one batch, as it is without this option
        options["maxOffsetsPerTrigger"] = str(PARTITIONS * PER_BATCH)

    def process(frame: "DataFrame", number: int) -> None:
        begin_batch()
        found = counts_of(by_minute(then_fail(frame)))
        point(Fault.BEFORE_WRITE)
        with bench.store.transaction() as tx:
            if is_keyed and not tx.execute("insert ignore into lab_batches values (%s)", (number,)):
                return
            bench.store.add(tx, found)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A way to deliver."""

    title: str
    """As it stands in the table."""
    process_all: Callable[[Bench], None]
    """Processes all lines; called again by another process when this one was killed."""
    delivery: str = ""
    """Which delivery of Tally's it is; '' when it is none."""
    tasks_commit: bool = False
    """Whether Spark's tasks commit, and not the driver."""

    @property
    def faults(self) -> list[Fault]:
        """The faults that it can meet."""
        return [fault for fault in Fault if self.tasks_commit or fault not in OF_TASKS]


def _tally(delivery: str, judged: str = "") -> Method:
    """A delivery of Tally's; and what of it is judged, if not the counts."""
    return Method(
        title=f'Tally, `delivery = "{delivery}"`{judged}',
        process_all=tallys.process_all,
        delivery=delivery,
        tasks_commit=delivery != "batch",
    )


METHODS: Final = {
    "batch": _tally("batch"),
    "partition": _tally("partition"),
    "rows": _tally("rows", ": the lines that readers see"),
    "procedure": _tally("procedure", ": the lines that readers see"),
    "files": _tally("files", ": the lines of the live files"),
    "at-most-once": Method(
        title="at most once: offsets, then counts",
        process_all=partial(two_transactions, offsets_first=True),
    ),
    "at-least-once": Method(
        title="at least once: counts, then offsets",
        process_all=partial(two_transactions, offsets_first=False),
    ),
    "earliest": Method(title="no stored offsets, from `earliest`", process_all=from_earliest),
    "latest": Method(title="no stored offsets, from `latest`", process_all=from_latest),
    "after-shuffle": Method(
        title="each task commits an offset, behind a shuffle",
        process_all=after_a_shuffle,
        tasks_commit=True,
    ),
    "unchecked": Method(
        title="each task commits its partition, unchecked",
        process_all=without_a_check,
        tasks_commit=True,
    ),
    "streaming": Method(
        title="Structured Streaming, the sink adds", process_all=partial(stream, is_keyed=False)
    ),
    "keyed-streaming": Method(
        title="Structured Streaming, the sink knows batch numbers",
        process_all=partial(stream, is_keyed=True),
    ),
}
