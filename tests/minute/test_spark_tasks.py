"""Tasks of Spark that run more than once, and servers that die under a batch."""

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from tally.errors import DataLossError, RetryableError
from tally_local.stack.server import Part
from tests.minute.driver import Driver, DriverProcess, Task
from tests.minute.steps import AT, ERROR, disturbed
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(3600)]

LINES = 10_000
SLOW_READER = {
    "minPartitions": 6,
    "kafka.max.poll.records": 100,
    "kafka.max.partition.fetch.bytes": 1,
    "kafkaConsumer.pollTimeoutMs": 120_000,
}
"""Small reads, so that there is time to kill a task."""


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    """One driver for all tests, in a process of its own, and its executors in others."""
    with DriverProcess(ctx=multiprocessing.get_context("spawn")) as process:
        driver: Driver = process.Driver()  # type: ignore[attr-defined]
        yield driver
        driver.close()


def count_until(
    happened: Callable[[list[Task]], bool],
    world: World,
    driver: Driver,
    disturb: "Callable[[Future[bool]], None]" = lambda _: None,
    passing: tuple[type[Exception], ...] = (),
) -> None:
    """Count batch after batch, which are disturbed in the read, until something has happened."""
    world.configure(reader=SLOW_READER)
    expected, is_done = 0, False
    while not is_done:
        world.produce([ERROR] * LINES, **{"batch.num.messages": 100})
        batch = world.planned()
        world.produce([ERROR])  # behind the planned end
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(driver.run, world.config, batch.batch_id)
            wait_until(lambda run=run: run.done() or driver.running())
            disturb(run)
            with suppress(*passing):
                assert run.result()
        is_done = happened(driver.tasks())
        driver.run(world.config, batch.batch_id)
        expected += LINES + (1 if expected else 0)
        assert world.counts() == {AT: expected}
    assert world.audit().holds


def test_speculative_copies_of_tasks_count_once(own_world: World, driver: Driver) -> None:
    driver.start_second()
    count_until(lambda tasks: any(task.is_speculative for task in tasks), own_world, driver)


def test_tasks_that_are_killed_are_run_again_and_count_once(
    own_world: World, driver: Driver
) -> None:
    def kill(_: "Future[bool]") -> None:
        for task in driver.running():
            driver.kill(task.number, "killed by a test")

    def was_killed(tasks: list[Task]) -> bool:
        return any("killed by a test" in task.error for task in tasks)

    count_until(was_killed, own_world, driver, kill)


def test_a_stage_that_is_computed_again_counts_once(own_world: World, driver: Driver) -> None:
    """Its results are lost when a part of them was fetched, and Spark reads Kafka again."""
    minutes = [f"2017-07-30 14:{n:02}" for n in range(60)]
    own_world.produce([f"{minute}:08 ERROR x" for minute in minutes] * 60, 0)
    own_world.produce([f"{minute}:08 ERROR x" for minute in minutes] * 40, 1)
    batch = own_world.planned()
    own_world.produce([ERROR])
    assert driver.run(own_world.config, batch.batch_id, loses_files=True)
    assert any(task.stage_attempt > 0 for task in driver.tasks())
    assert own_world.counts() == dict.fromkeys(minutes, 100)
    assert own_world.audit().holds


def test_the_broker_dies_and_comes_back_in_the_middle_of_the_read(
    own_world: World, driver: Driver
) -> None:
    in_the_middle = []

    def kill_the_broker(_: "Future[bool]") -> None:
        for process in own_world.stack.processes.members(Part.KAFKA):
            process.suspend()
        in_the_middle.append(bool(driver.running()))
        own_world.stack.processes.kill(Part.KAFKA)
        own_world.bring_back(Part.KAFKA)

    errors = (RetryableError, DataLossError)
    count_until(lambda _: in_the_middle[-1], own_world, driver, kill_the_broker, errors)


def test_the_database_dies_under_the_commit(own_world: World) -> None:
    """MySQL is killed in the transaction: nothing of it stays, and the next run counts once."""
    batch = own_world.planned([ERROR] * 300)

    def kill() -> None:
        own_world.stack.processes.kill(Part.MYSQL)
        own_world.bring_back(Part.MYSQL)

    with pytest.raises(RetryableError):
        disturbed(own_world, "update partition_offset", kill).run(batch.batch_id)
    assert own_world.counts() == {}
    assert own_world.run(batch.batch_id).committed
    assert own_world.counts() == {AT: 300}
    assert own_world.audit().holds
