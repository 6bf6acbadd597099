"""What tasks tell the driver that commit their own partition, and what the driver keeps of it."""

import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from tally.aggregates.aggregate import Aggregate, Sum
from tally.aggregates.counts import CountRequest, Counts
from tally.errors import DataLossError, FencedError, ReadError
from tally.spark.counting import tasks_for
from tally.spark.grouping import Grouping
from tally.spark.reading import collect
from tally.spark.task_counting import CountWork, TaskOutcome, outcome_of_each, worth_a_plan
from tally.spark.task_groups import add_up, with_end, without_end
from tests.unit.values import P0, pipeline, span, totals
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PIPELINE = pipeline(offsets="sparse")
AGGREGATE = Aggregate.of(PIPELINE)
P1 = replace(P0, partition=1)
REQUESTS = [CountRequest(pipeline=PIPELINE, ranges=[span(0, 10, number)]) for number in (0, 1)]


def records(_: CountRequest, counts: Counts) -> int:
    return sum(total.records for total in counts.totals.values())


def of(number: int, value: Any = None) -> TaskOutcome:
    """What a task tells that has read a partition."""
    return TaskOutcome(partition=replace(P0, partition=number), value=value)


def told(*outcomes: TaskOutcome) -> list[tuple[int, Any]]:
    """What the driver makes of the outcomes of tasks for two partitions."""
    found = outcome_of_each(CountWork(requests=REQUESTS, work=records), outcomes)
    return [(r.ranges[0].partition.partition, o.error or o.value) for r, o in found]


def test_each_request_gets_the_outcome_of_its_task() -> None:
    """In the order of the requests. A task without records does not know whose work it left."""
    assert told(of(1, "one"), of(0, "none")) == [(0, "none"), (1, "one")]
    assert told(of(1, "one"), TaskOutcome()) == [(0, 0), (1, "one")]
    # Nor does one that has failed before it knew its partition: nothing is committed for it.
    with pytest.raises(DataLossError, match="gone"):
        told(of(0), TaskOutcome(error=DataLossError("gone")))


@pytest.mark.parametrize(
    "outcomes", [[of(0)], [of(0), of(0)], [of(0), of(1), of(1)], [of(0), of(1), TaskOutcome()]]
)
def test_a_range_that_one_task_has_not_read_whole_is_an_error(outcomes: list[TaskOutcome]) -> None:
    """Fewer tasks than ranges, or more, or two for one range: the driver does not guess."""
    with pytest.raises(ReadError, match="instead of each in one"):
        told(*outcomes)


TYPES = {
    "partition": pa.int32(),
    "minute": pa.string(),
    **{s.name: pa.int64() for s in AGGREGATE.sums_of_groups},
    "reason": pa.string(),
    "value": pa.binary(),
    "value_bytes": pa.int32(),
    "micros": pa.int64(),
}
USUAL = {
    "partition": 1,
    "minute": "2026-01-01 00:00:00",
    "records": 1,
    "malformed": 0,
    "continuations": 0,
    "first_offset": 3,
    "last_offset": 3,
    "kept_bytes": 0,
    "first_malformed": None,
    "last_malformed": None,
}
FINE = {"reason": None, "value": None, "value_bytes": None, "micros": None}
BAD = {"minute": None, "malformed": 1, "first_malformed": 3, "last_malformed": 3}


def groups(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Groups of a task, with what they have in common filled in."""
    whole = [{**USUAL, **row} for row in rows]
    schema = pa.schema([(name, kind) for name, kind in TYPES.items() if name in whole[0]])
    return pa.RecordBatch.from_pylist(whole, schema=schema)


def outcome(
    *batches: pa.RecordBatch, work: Any = records, is_cut: bool = False, **more: Any
) -> TaskOutcome:
    """What a task tells that gets these groups, and the row behind them unless it is cut."""
    whole = [] if is_cut else list(with_end([], schema=(batches or (groups({}),))[0].schema))
    task = CountWork(requests=REQUESTS, work=work, **more)
    (row,) = list(task(iter([*batches, *whole])))
    found = pickle.loads(row.column("outcome")[0].as_py())  # noqa: S301 - our own
    assert isinstance(found, TaskOutcome)
    return found


def test_a_task_without_records_says_so_unless_its_input_was_cut() -> None:
    """The end of the input is no proof: a sparse range may have any number of records."""
    assert outcome() == TaskOutcome()
    assert outcome(groups({}).slice(1)) == TaskOutcome()
    for cut in (outcome(groups({}), is_cut=True), outcome(is_cut=True)):
        assert isinstance(cut.error, ReadError)
        assert "too early" in cut.error.what
        assert cut.value is None


def test_a_second_read_must_find_what_the_first_has_found() -> None:
    """Otherwise one of them was not whole."""
    first = {P1: totals(2, 0, 0, 3, 3)}
    assert isinstance(outcome(groups(FINE), first_reads=first).error, DataLossError)
    assert outcome(groups({**FINE, "records": 2}), first_reads=first).value == 2


def test_malformed_records_are_not_committed_without_their_values() -> None:
    """The work is left undone until the records were read one by one."""
    left = TaskOutcome(partition=P1, first_read=totals(0, 0, 1, 3, 3))
    assert outcome(groups(BAD)) == left

    def kept(_: CountRequest, counts: Counts) -> list[tuple[int, str, bytes | None]]:
        return [(d.offset, d.reason, d.value) for d in counts.dead_letters]

    whole = {**BAD, "reason": "no_match", "value": b"x", "value_bytes": 1, "micros": 0}
    two = groups(whole, {**FINE, "first_offset": 4, "last_offset": 4})
    found = outcome(two, work=kept, first_reads={P1: totals(1, 0, 1, 3, 4)})
    assert found.value == [(3, "no_match", b"x")]


def raising(error: Exception) -> Any:

    def work(*_: object) -> None:
        raise error

    return work


def test_an_error_of_the_work_is_told_with_its_partition() -> None:
    """The driver decides what becomes of the batch; the job goes on."""
    found = outcome(groups({}), work=raising(FencedError("another attempt", next_step="look")))
    assert isinstance(found.error, FencedError)
    assert (found.partition, found.error.next_step) == (P1, "look")
    # What is read outside of the range is an error of the same kind as in the driver.
    assert isinstance(outcome(groups({"last_offset": 10})).error, DataLossError)
    # A bug is no reason to try again: the driver raises it with its traceback.
    found = outcome(groups({}), work=raising(KeyError("what")))
    with pytest.raises(RuntimeError, match="KeyError: 'what'"):
        found.result()


@pytest.mark.parametrize("size", [1, 99, 2_000])
def test_sums_do_not_depend_on_batches(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial groups are added up again when there are many of them."""
    monkeypatch.setattr("tally.spark.task_groups._ROWS_MAX", 20)
    rows = [
        {"partition": 1, "key": f"k{n % 7}", "offset": n, "kept_bytes": 2} for n in range(2_000)
    ]
    batches = pa.Table.from_pylist(rows).to_batches(max_chunksize=size)
    sums = add_up(batches, ["partition"], ["key"], AGGREGATE.sums_of_records)
    found = pa.Table.from_batches(sums)
    of_records = ["records", "first_offset", "last_offset", "kept_bytes"]
    assert found.column_names == ["partition", "key", *of_records]
    assert found["key"].to_pylist() == [f"k{n}" for n in range(7)]
    assert list(found.to_pylist()[2].values()) == [1, "k2", 286, 2, 1997, 572]
    assert found.num_rows == 7
    assert Sum("records", "count", "offset").again == Sum("records", "sum", "records")
    assert Sum("first", "min", "offset").again == Sum("first", "min", "first")


def test_the_end_of_an_input_proves_nothing(spark: "SparkSession", tmp_path: Path) -> None:
    """Where the JVM fails, Python sees an end like any other; the row behind the last one tells."""
    told = tmp_path / "told"

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, end = 0, "whole"
        try:
            for batch in without_end(batches):
                rows += batch.num_rows
        except ReadError:
            end = "cut"
        told.write_text(f"{rows} {end}", encoding="utf-8")
        yield pa.RecordBatch.from_pydict({"records": pa.array([rows], pa.int64())})

    schema = pa.schema([("records", pa.int64())])
    number = F.col("id")
    rows = spark.range(0, 400_000, 1, 1).select(number.alias("records"))
    whole = rows.mapInArrow(partial(with_end, schema=schema), "records long")
    whole.mapInArrow(look, "records long").collect()
    assert told.read_text("utf-8") == "400000 whole"
    told.unlink()
    broken = F.when(F.col("records") == 300_000, F.raise_error(F.lit("broken")))
    cut = rows.select(F.coalesce(broken, F.col("records")).alias("records"))
    with pytest.raises(PySparkException, match="broken"):
        cut.mapInArrow(look, "records long").collect()
    wait_until(lambda: told.exists() and told.read_text("utf-8"))
    seen, end = told.read_text("utf-8").split()
    assert end == "cut"
    assert 0 < int(seen) < 300_000


def test_large_ranges_have_a_plan_of_their_own() -> None:
    """The largest ones, and not too many of them."""
    ranges = [span(0, until, n) for n, until in enumerate([10, 300_000, 199_999, 400_000])]
    assert worth_a_plan(ranges) == [ranges[3], ranges[1]]
    many = [span(0, 500_000 + n, n) for n in range(100)]
    assert worth_a_plan(many) == many[:-33:-1]


def test_ranges_of_their_own_are_grouped_without_an_exchange(
    spark: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    """Each in one task, which gets all that is in it."""
    records = spark.range(0, 100, 1, 3).select(
        F.lit("2026-01-01 00:00:00 ERROR x").cast("binary").alias("value"),
        F.lit(None).cast("binary").alias("key"),
        F.lit(1).alias("partition"),
        F.col("id").alias("offset"),
        F.current_timestamp().alias("timestamp"),
    )
    groups = Grouping.of(PIPELINE, {"alog"}).counts_in_tasks(None, [records, records])
    groups.explain()
    plan = capsys.readouterr().out
    assert plan.count("HashAggregate") == 4
    assert "Exchange" not in plan
    numbers = [row.records for row in groups.collect()]
    assert sorted(numbers, key=str) == [100, 100, None, None]


def test_large_ranges_are_divided_among_tasks() -> None:
    """No further than a few cores need, unless a task would read too much."""
    for sizes, tasks in (
        *[([], 0), ([10], 1), ([1_499_999], 1), ([4_000_000], 4), ([2_500_000] * 4, 4)],
        *[([2_500_001, 2_499_999, 2_500_000, 2_500_000], 4), ([9_000_000, 300_000, 300_000], 6)],
        *[([100_000] * 64, 64), ([50_000_000], 10), ([20_000_000] * 4, 16)],
    ):
        assert tasks_for(sizes) == tasks, sizes


def used_after_collection(spark: "SparkSession") -> int:
    """Bytes of the driver's heap that are in use, without garbage."""
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())


def test_the_driver_forgets_the_rows_that_it_has_handed_on(spark: "SparkSession") -> None:
    """Spark keeps the results of a query's jobs until it ends: here each partition is a job."""
    partitions, size = 32, 2_000_000
    # Random, as Spark compresses what a task returns.
    text = F.randstr(F.lit(size), F.lit(1))
    rows = collect(spark.range(0, partitions, 1, partitions).select("id", text), ())
    first = next(rows)
    began = used_after_collection(spark)
    rest = [(row[0], len(row[1])) for _, row in zip(range(partitions - 2), rows, strict=False)]
    grown = used_after_collection(spark) - began
    assert len(first[1]) == size
    assert rest == [(number, size) for number in range(1, partitions - 1)]
    assert grown < partitions * size / 4
    assert [row[0] for row in rows] == [partitions - 1]
