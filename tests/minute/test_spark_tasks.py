"""Tasks of Spark that run more than once, and a broker that dies under them."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tally.errors import DataLossError, RetryableError
from tally.model import OffsetRange
from tally.pipeline.run import Ran, run_batch
from tally.spark.counting import SparkReader
from tally.spark.reading import collect
from tally_local.stack.server import Part
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(3600)]

ERROR = "2017-07-30 14:09:08 ERROR some message"
LINES = 60_000
SLOW_READER = {
    "minPartitions": 7,
    "kafka.max.poll.records": 200,
    "kafka.max.partition.fetch.bytes": 20_000,
    "kafkaConsumer.pollTimeoutMs": 120_000,
}
"""Small reads, so that there is time to kill a task."""


class Stages:
    """Spark's own report of the stages that begin after this object is created."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._before = max((stage.stageId() for stage in self._all()), default=-1)

    def running(self) -> list[int]:
        """The ids of the task attempts that run now."""
        return [
            attempt.taskId()
            for stage in self._since()
            for attempt in _items(self._store().taskList(stage.stageId(), stage.attemptId(), 1000))
            if str(attempt.status()) == "RUNNING"
        ]

    def kill(self, task: int) -> None:
        """Kill a task attempt, as the loss of its executor would; Spark starts another."""
        self._context.killTaskAttempt(task, True, "a test")

    def killed(self) -> int:
        """How many attempts were killed."""
        return sum(int(stage.numKilledTasks()) for stage in self._since())

    def computed_again(self) -> int:
        """How many stage attempts were not the first."""
        return sum(stage.attemptId() > 0 for stage in self._since())

    def _since(self) -> list[Any]:
        return [stage for stage in self._all() if stage.stageId() > self._before]

    def _all(self) -> list[Any]:
        store = self._store()
        defaults = [getattr(store, f"stageList$default${n}")() for n in (2, 3, 4, 5)]
        return _items(store.stageList(None, *defaults))

    def _store(self) -> Any:
        self._context.listenerBus().waitUntilEmpty()
        return self._context.statusStore()


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(n) for n in range(sequence.size())]


def planned_id(world: World) -> int:
    """The id of a new batch; a line more is written before it is read."""
    world.produce([ERROR] * LINES)
    batch = world.plan().batch
    assert batch is not None
    world.produce([ERROR])
    return batch.batch_id


def wait_for_tasks(stages: Stages, run: "Future[Ran]") -> list[int]:
    """The running tasks of a read; empty when it ended too quickly."""
    while not run.done():
        if running := stages.running():
            return running
    return []


def test_tasks_that_are_killed_are_run_again_and_count_once(
    world: World, spark: "SparkSession"
) -> None:
    """A killed attempt contributes nothing, and the next one reads the same range."""
    world.configure(reader=SLOW_READER)
    stages = Stages(spark)
    expected = 0
    while not stages.killed():
        batch_id = planned_id(world)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(world.run, batch_id, spark)
            for task in wait_for_tasks(stages, run):
                stages.kill(task)
            assert run.result().committed
        expected += LINES + (1 if expected else 0)
        assert world.counts() == {"2017-07-30 14:09": expected}
    assert world.audit().holds


def test_a_stage_that_is_computed_again_counts_once(world: World, spark: "SparkSession") -> None:
    """Its results are lost when half of them are fetched, and Spark reads Kafka again."""
    minutes = [f"2017-07-30 14:{n:02}" for n in range(60)]
    world.produce([f"{minute}:08 ERROR x" for minute in minutes] * 3, 0)
    world.produce([f"{minute}:08 ERROR x" for minute in minutes] * 2, 1)
    batch = world.plan().batch
    assert batch is not None
    world.produce([ERROR])

    def lose_after_the_first(rows: "DataFrame", ranges: Sequence[OffsetRange]) -> "Iterator[Row]":
        found = collect(rows, ranges)
        yield next(found)
        lose_shuffle_files(spark)
        yield from found

    kafka = world.settings.kafka
    reader = SparkReader(session=spark, kafka=kafka, fetch=lose_after_the_first)
    ctx = world.context(open_reader=lambda: nullcontext(reader))
    stages = Stages(spark)
    joined = "spark.sql.adaptive.coalescePartitions.enabled"
    spark.conf.set(joined, "false")
    try:
        assert run_batch(ctx, batch.batch_id).committed
    finally:
        spark.conf.unset(joined)
    assert stages.computed_again()
    assert world.counts() == dict.fromkeys(minutes, 5)
    assert world.audit().holds


def lose_shuffle_files(spark: "SparkSession") -> None:
    """Delete the results of finished tasks, as a lost disk does."""
    environment = spark._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    folders = [Path(f.getPath()) for f in environment.blockManager().diskBlockManager().localDirs()]
    files = [file for folder in folders for file in folder.rglob("shuffle_*")]
    assert files
    for file in files:
        file.unlink()


def test_the_broker_dies_and_comes_back_in_the_middle_of_the_read(
    world: World, spark: "SparkSession"
) -> None:
    """The broker dies during the read; counted once, by this run or the next."""
    world.configure(reader=SLOW_READER)
    stages = Stages(spark)
    expected, in_the_middle = 0, False
    while not in_the_middle:
        batch_id = planned_id(world)
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(world.run, batch_id, spark)
            wait_for_tasks(stages, run)
            for process in world.stack.members(Part.KAFKA):
                process.suspend()
            in_the_middle = bool(stages.running())
            world.stack.kill(Part.KAFKA)
            world.bring_back(Part.KAFKA)
            with suppress(RetryableError, DataLossError):
                run.result()
        world.run(batch_id, spark)
        expected += LINES + (1 if expected else 0)
        assert world.counts() == {"2017-07-30 14:09": expected}
    assert world.audit().holds
