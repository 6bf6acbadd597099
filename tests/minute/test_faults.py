"""Servers and executors that die during a batch."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from tally.errors import DataLossError, RetryableError
from tally.spark.session import QUICK_START
from tally_local.stack.server import Part
from tests.spark_submit import job, spark_environment
from tests.waiting import wait_until
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ERROR = "2017-07-30 14:09:08 ERROR some message"


def planned_id(world: World) -> int:
    """The id of the batch that is open or newly planned."""
    batch = world.plan().batch
    assert batch is not None
    return batch.batch_id


def test_the_broker_dies_under_the_read(world: World, spark: "SparkSession") -> None:
    """The broker is killed and restarted during a read: counted once, by this run or the next."""
    world.produce([ERROR] * 100_000, 0)
    world.produce([ERROR] * 100_000, 1)
    batch_id = planned_id(world)
    claimed = threading.Event()

    def kill_and_restart() -> None:
        claimed.wait(60)
        world.stack.kill(Part.KAFKA)
        world.bring_back(Part.KAFKA)

    killer = threading.Thread(target=kill_and_restart)
    killer.start()
    try:
        claimed.set()
        with suppress(RetryableError, DataLossError):
            world.run(batch_id, spark)
    finally:
        killer.join()
    world.run(batch_id, spark)
    assert world.counts() == {"2017-07-30 14:09": 200_000}
    assert world.audit().holds


def test_the_database_dies_under_the_commit(world: World, spark: "SparkSession") -> None:
    """MySQL is killed in the transaction: nothing of it stays, and the next run counts once."""
    world.produce([ERROR] * 300)
    batch_id = planned_id(world)
    with closing(world.connect()) as other, other.cursor() as cursor:
        # The run's commit waits for this row, in the middle of its transaction.
        cursor.execute(
            "select * from partition_offset o join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s for update",
            (world.name,),
        )
        failures: list[BaseException] = []

        def run() -> None:
            try:
                world.run(batch_id, spark)
            except RetryableError as error:
                failures.append(error)

        runner = threading.Thread(target=run)
        runner.start()
        wait_until(lambda: waits_in_commit(world))
        world.stack.kill(Part.MYSQL)
        world.bring_back(Part.MYSQL)
        runner.join()
    assert len(failures) == 1
    assert world.counts() == {}
    assert world.run(batch_id, spark).committed
    assert world.counts() == {"2017-07-30 14:09": 300}
    assert world.audit().holds


def waits_in_commit(world: World) -> bool:
    """Whether a commit waits for a lock on the offsets."""
    return bool(
        world.rows(
            "select 1 from information_schema.processlist where user = %s"
            " and info like 'update partition_offset%%'",
            (world.settings.mysql.user,),
        )
    )


def test_an_executor_dies_under_the_read(world: World) -> None:
    """Another executor runs its tasks again, and nothing is counted twice."""
    world.produce([ERROR] * 60_000, 0)
    world.produce([ERROR] * 60_000, 1)
    world.configure(reader={"minPartitions": 16, "kafka.max.poll.records": 500})
    batch_id = planned_id(world)
    master = "local-cluster[2,1,1024]"
    conf = {"spark.executor.memory": "700m", "spark.executor.extraJavaOptions": QUICK_START}
    with subprocess.Popen(
        job(world.stack, batch_id, master=master, conf=conf),
        env=spark_environment(
            TALLY_CONFIG=str(world.config),
            TALLY_SPARK__MASTER=master,
            SPARK_LOCAL_IP="127.0.0.1",
        ),
        start_new_session=True,
    ) as driver:
        broker = int(world.settings.kafka.bootstrap_servers.rsplit(":", 1)[1])
        wait_until(lambda: [e for e in executors(driver.pid) if reads(e, broker)])[0].kill()
        assert driver.wait(300) == 0
    assert world.counts() == {"2017-07-30 14:09": 120_000}
    assert world.audit().holds


def executors(leader: int) -> Iterator[psutil.Process]:
    """The executor processes of a job."""
    for process in psutil.Process(leader).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                yield process


def reads(executor: psutil.Process, broker: int) -> bool:
    """Whether an executor is connected to the broker's port: the driver gives it the offsets."""
    with suppress(psutil.NoSuchProcess):
        return any(c.raddr and c.raddr.port == broker for c in executor.net_connections("tcp"))
    return False
