"""``tally run`` with Spark in a process of its own, which dies."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tally.config.servers import KafkaSettings
from tally.errors import EXIT_RETRYABLE
from tests.conftest import PROJECT
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LINE = "2017-07-30 14:09:08 ERROR some message"
LINES = 300_000
START_S = 300

Moment = Callable[[psutil.Process, KafkaSettings], bool]


def starts(jvm: psutil.Process, _: KafkaSettings) -> bool:
    """It has only begun."""
    return jvm.is_running()


def reads(jvm: psutil.Process, kafka: KafkaSettings) -> bool:
    """It has a connection to the broker."""
    port = int(kafka.bootstrap_servers.rpartition(":")[2])
    return any(c.raddr and c.raddr.port == port for c in jvm.net_connections("tcp"))


def kill_jvm(process: "subprocess.Popen[str]", moment: Moment, kafka: KafkaSettings) -> bool:
    """SIGKILL a JVM that a command has started, if the moment has come; returns whether."""
    assert process.poll() is None, process.communicate()
    try:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "java" and moment(child, kafka):
                child.kill()
                return True
    except psutil.NoSuchProcess:  # the JVM that puts Spark's command together is gone soon
        return False
    return False


@pytest.mark.parametrize("moment", [starts, reads])
def test_a_spark_that_dies_is_a_failure_that_may_pass(world: World, moment: Moment) -> None:
    """It is said in a sentence; the next run counts the same batch."""
    world.produce([LINE] * LINES)
    command = [Path(sys.executable).with_name("tally"), "run", "--pipeline", world.name]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        wait_until(lambda: kill_jvm(process, moment, world.settings.kafka), START_S)
        said, _ = process.communicate(timeout=START_S)
    assert "Traceback" not in said, said
    assert process.returncode == EXIT_RETRYABLE, said
    assert "Spark" in said
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert world.counts() == {"2017-07-30 14:09": LINES}
    assert world.audit().holds
