"""Tasks of Spark that run more than once, and a broker that dies under them."""

import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tally.errors import DataLossError, RetryableError
from tally.pipeline.run import Ran
from tally_local.stack.server import Part
from tests.conftest import PROJECT
from tests.minute.stages import Stages
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def test_a_stage_that_is_computed_again_counts_once(world: World) -> None:
    """Its results are lost when half of them are fetched, and Spark reads Kafka again."""
    minutes = [f"2017-07-30 14:{n:02}" for n in range(60)]
    # More than a small batch, whose groups come in one part.
    world.produce([f"{minute}:08 ERROR x" for minute in minutes] * 3_000, 0)
    world.produce([f"{minute}:08 ERROR x" for minute in minutes] * 2_000, 1)
    batch = world.plan().batch
    assert batch is not None
    world.produce([ERROR])
    command = [sys.executable, "-m", "tests.minute.lost_files", str(batch.batch_id)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    committed, computed_again = done.stdout.split()
    assert (committed, int(computed_again) > 0) == ("True", True)
    assert world.counts() == dict.fromkeys(minutes, 5_000)
    assert world.audit().holds


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
