"""Two concurrent attempts at one task, on a cluster of two host names of one machine."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tally.spark.session import QUICK_START
from tests.spark_submit import SPARK_HOME, job, spark_environment
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

ERROR = "2017-07-30 14:09:08 ERROR some message"
LINES = 30_000
DEPLOY = "org.apache.spark.deploy"
DRIVER = "127.0.0.1"
WORKERS = ("127.0.0.1", "localhost")
"""Spark copies a task only to another host than that of its first attempt; by name these differ."""

EAGER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.host": DRIVER,
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


@contextmanager
def daemon(log: Path, host: str, said: str, *command: str) -> Iterator[str]:
    """A process of Spark's; yields what its log says when it is ready."""
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [
                str(SPARK_HOME / "bin" / "spark-class"),
                *command,
                "--host",
                host,
                "--webui-port",
                "0",
            ],
            env=spark_environment(SPARK_LOCAL_IP=host),
            stdout=written,
            stderr=written,
        ) as process,
    ):
        try:
            while not (found := re.search(said, log.read_text(encoding="utf-8"))):
                assert process.poll() is None, f"it has ended before it said {said}"
                time.sleep(0.1)
            yield found[0]
        finally:
            process.kill()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with two workers of one core."""
    with ExitStack() as stack:
        first = (f"{DEPLOY}.master.Master", "--port", "0")
        log = tmp_path / "master.log"
        url = stack.enter_context(daemon(log, DRIVER, rf"spark://{DRIVER}:[1-9]\d*", *first))
        for host in WORKERS:
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / host))
            worker = (f"{DEPLOY}.worker.Worker", *size, url)
            log = tmp_path / f"{host}.log"
            stack.enter_context(daemon(log, host, "Successfully registered with master", *worker))
        yield url


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
            TALLY_CONFIG=str(world.config), TALLY_SPARK__MASTER=master, SPARK_LOCAL_IP=DRIVER
        ),
        check=True,
    )


def speculative(events: Path) -> int:
    """How many speculative copies of tasks were started, by Spark's event log."""
    (log,) = [path for path in events.iterdir() if not path.name.startswith(".")]
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    started = [line["Task Info"] for line in lines if line["Event"] == "SparkListenerTaskStart"]
    return sum(task["Speculative"] for task in started)
