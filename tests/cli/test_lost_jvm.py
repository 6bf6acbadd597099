"""``tally run`` with Spark in a process of its own, which dies."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tally.app.migrate import migrate
from tally.config.servers import KafkaSettings
from tally.errors import EXIT_RETRYABLE
from tests.conftest import PROJECT
from tests.waiting import wait_until
from tests.world import World, make_settings

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


def with_jvm(
    process: "subprocess.Popen[str]",
    moment: Moment,
    kafka: KafkaSettings,
    act: Callable[[psutil.Process], None],
) -> bool:
    """Do something to a JVM that a command has started, if the moment has come; returns whether."""
    assert process.poll() is None, process.communicate()
    try:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "java" and moment(child, kafka):
                act(child)
                return True
    except psutil.NoSuchProcess:  # the JVM that puts Spark's command together is gone soon
        return False
    return False


@pytest.mark.parametrize("moment", [starts, reads])
def test_a_spark_that_dies_is_a_failure_that_may_pass(
    world: World, moment: Moment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said in a sentence, and leaves nothing behind; the next run counts the same batch."""
    temporary = tmp_path / "a temporary folder"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    world.produce([LINE] * LINES)
    command = [Path(sys.executable).with_name("tally"), "run", "--pipeline", world.name]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        wait_until(
            lambda: with_jvm(process, moment, world.settings.kafka, psutil.Process.kill), START_S
        )
        said, _ = process.communicate(timeout=START_S)
    assert "Traceback" not in said, said
    assert process.returncode == EXIT_RETRYABLE, said
    assert "Spark" in said
    assert not [path for path in temporary.rglob("*") if path.parent != temporary]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert world.counts() == {"2017-07-30 14:09": LINES}
    assert world.audit().holds


def test_a_spark_without_memory_says_what_to_set(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large records of a topic that is well compressed; with fewer at once the batch is counted."""
    producer = world.producer(**{"compression.type": "zstd", "message.max.bytes": 1_000_000})
    for _ in range(700):
        producer.produce(world.topic, f"{LINE} {'x' * 900_000}".encode(), partition=0)
        producer.poll(0.001)
    assert producer.flush(START_S) == 0
    monkeypatch.setenv("TALLY_SPARK__CONF", '{"spark.driver.memory": "512m"}')
    command = [Path(sys.executable).with_name("tally"), "run", "--pipeline", world.name]
    failed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert failed.returncode == EXIT_RETRYABLE, failed.stderr
    assert "java.lang.OutOfMemoryError" in failed.stderr
    assert "An error occurred while calling" not in failed.stderr
    assert "Traceback" not in failed.stderr
    advice = 'reader = { "kafka.max.poll.records" = "20" }'
    assert advice in " ".join(failed.stderr.split())
    world.configure(reader={"kafka.max.poll.records": "20"})
    counted = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert counted.returncode == 0, counted.stderr
    assert world.counts() == {"2017-07-30 14:09": 700}
    monkeypatch.setenv("COLUMNS", "200")
    tried = subprocess.run(
        [command[0], "format", "try", world.topic, "--format", "log4j"],
        cwd=PROJECT,
        capture_output=True,
        check=False,
    )
    assert tried.returncode == 0, tried.stderr
    assert b"log4j: 9 of 9 understood" in tried.stdout
    assert b"WARN" not in tried.stderr


def test_a_spark_that_hangs_is_ended_and_the_next_pipeline_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped JVM stands for a line that keeps Java busy: neither heeds a request to end."""
    other = f"q_{world.name}"
    world.create_topic(1, other)
    world.produce([LINE] * 3, topic=other)
    world.produce([LINE] * LINES)
    monkeypatch.setenv("TALLY_MYSQL__STATEMENT_TIMEOUT_S", "20")
    monkeypatch.setenv("TALLY_MYSQL__LOCK_WAIT_TIMEOUT_S", "5")
    hanging = {"topics": [world.topic], "patience_s": 30}
    pipelines = {world.name: hanging, other: {"topics": [other]}}
    migrate(world.database, make_settings(world.stack, world.config, pipelines))
    command = [Path(sys.executable).with_name("tally"), "run"]
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        wait_until(
            lambda: with_jvm(process, reads, world.settings.kafka, psutil.Process.suspend), START_S
        )
        said, _ = process.communicate(timeout=START_S)
    assert process.returncode == EXIT_RETRYABLE, said
    assert "count-timeout" in said
    assert "Traceback" not in said, said
    assert "WARNING" not in said, said
    assert [b["state"] for b in world.batches()] == ["planned"]
    counted = world.rows(f"select sum(log_count) as n from `{other}`")
    assert [int(row["n"]) for row in counted] == [3]
