"""Two concurrent attempts at one task, on a cluster whose workers have hosts of their own.

Spark copies a task only to another host than that of its first attempt.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.spark.session import QUICK_START
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.server import Part
from tally_local.stack.spark_cluster import SparkCluster
from tally_local.stack.stack import Stack
from tests.conftest import PROJECT
from tests.spark_submit import job, spark_environment
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ERROR = "2017-07-30 14:09:08 ERROR some message"
LINES = 30_000
EAGER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.host": LOOPBACK,
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "0.001",
    "spark.speculation.minTaskRuntime": "0ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
"""Copies every task for which there is room."""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with two workers of one core."""
    home = tmp_path / "home"
    cluster = SparkCluster(folder=home / Part.CLUSTER, cores=1)
    stack = Stack(project=PROJECT, home=home, servers=lambda _: cluster)
    address = stack.up([Part.CLUSTER])[0].address
    assert address is not None
    yield address
    stack.down([Part.CLUSTER])


@pytest.mark.timeout(3600)
def test_speculative_copies_of_tasks_count_once(world: World, master: str, tmp_path: Path) -> None:
    """Two executors run the same task, and only one result is counted."""
    world.configure(reader={"minPartitions": 5, "kafka.max.poll.records": 100})
    expected, copies = 0, 0
    while not copies:
        world.produce([ERROR] * LINES)
        batch = world.plan().batch
        assert batch is not None
        events = tmp_path / f"events-{batch.batch_id}"
        events.mkdir()
        count(world, batch.batch_id, master, events)
        copies = speculative(events)
        expected += LINES
        assert world.counts() == {"2017-07-30 14:09": expected}
    assert world.audit().holds


def count(world: World, batch_id: int, master: str, events: Path) -> None:
    """Run the job on the cluster."""
    conf = {**EAGER, "spark.eventLog.dir": events.as_uri()}
    subprocess.run(
        job(world.stack, batch_id, master=master, conf=conf),
        env=spark_environment(
            TALLY_CONFIG=str(world.config), TALLY_SPARK__MASTER=master, SPARK_LOCAL_IP=LOOPBACK
        ),
        check=True,
    )


def speculative(events: Path) -> int:
    """How many speculative copies of tasks were started, by Spark's event log."""
    (log,) = [path for path in events.iterdir() if not path.name.startswith(".")]
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    started = [line["Task Info"] for line in lines if line["Event"] == "SparkListenerTaskStart"]
    return sum(task["Speculative"] for task in started)
