"""Commands with Spark in a process of its own, which dies, hangs or has too little memory."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tally.errors import EXIT_RETRYABLE
from tally.set_up.migrate import migrate
from tests.cli.conftest import LINE, Call, commit
from tests.servers import PROJECT, TALLY
from tests.waiting import wait_until
from tests.world import World, make_settings

pytestmark = [pytest.mark.stack, pytest.mark.spark]

START_S = 300

SLOWLY = {"kafka.max.poll.records": "1", "kafka.max.partition.fetch.bytes": "1"}
"""Options of a reader that takes a record with each answer of the broker."""
LINES = 5_000
"""Records of which a read, in that way, takes longer than it takes to notice that it has begun."""

TOGETHER = """
import sys
from contextlib import ExitStack, nullcontext
from tally.context import own_session
from tally.cli import cli
from tally.cli.app import App

with ExitStack() as scope:
    sessions = []
    def lend(settings, **_):
        sessions.extend([] if sessions else [scope.enter_context(own_session(settings))])
        return nullcontext(sessions[0])
    for command in sys.argv[1:]:
        cli(command.split(), obj=App(open_spark=lend), standalone_mode=False)
"""
"""A program of several commands, which share its Spark."""

RECORDS = 600
"""Records of 900,000 characters, which fill a heap of 512 MB."""

Moment = Callable[[psutil.Process], bool]
Act = Callable[[psutil.Process], None]


def disturbed(command: Sequence[str | Path], *acts: tuple[Moment, Act]) -> tuple[int, str]:
    """A command to its end; one thing after another is done to its JVM, each at a moment."""
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:

        def is_done(moment: Moment, act: Act) -> bool:
            assert process.poll() is None, process.communicate()
            # The JVM that puts Spark's command together is gone soon.
            with suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    if child.name() == "java" and moment(child):
                        act(child)
                        return True
            return False

        for act in acts:
            wait_until(partial(is_done, *act), START_S)
        said, _ = process.communicate(timeout=START_S)
    return process.returncode, said


def test_a_spark_that_dies_or_hangs_is_a_failure_that_may_pass(
    world: World, tally: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said in a sentence, and leaves nothing behind; the next run counts the same batches.

    One dies at its start. One hangs and is ended: a stopped JVM stands for a line that keeps Java
    busy, as neither heeds a request to end. Its successor counts the next pipeline, and dies while
    it reads for the last.
    """
    temporary = tmp_path / "a temporary folder"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("TALLY_MYSQL__STATEMENT_TIMEOUT_S", "20")
    monkeypatch.setenv("TALLY_MYSQL__LOCK_WAIT_TIMEOUT_S", "5")
    names = [world.name, f"q_{world.name}", f"r_{world.name}"]
    for name in names[1:]:
        world.create_topic(1, name)
    for name, lines in zip(names, (LINES, 3, LINES), strict=True):
        world.produce([LINE] * lines, topic=name, **{"batch.num.messages": 1})
    pipelines = {name: {"topics": [name], "patience_s": 30, "reader": SLOWLY} for name in names}
    migrate(world.database, make_settings(world.stack, world.config, pipelines))
    port = int(world.settings.kafka.bootstrap_servers.rpartition(":")[2])

    def state(name: str) -> list[tuple[str, int]]:
        rows = world.rows("select state, attempt from batch where pipeline = %s", (name,))
        return [(row["state"], row["attempt"]) for row in rows]

    def reads(jvm: psutil.Process) -> bool:
        return any(c.raddr and c.raddr.port == port for c in jvm.net_connections("tcp"))

    def reads_last(_: psutil.Process) -> bool:
        return state(names[2]) == [("planned", 1)]

    code, said = disturbed(
        [TALLY, "run", "--pipeline", names[0]], (psutil.Process.is_running, psutil.Process.kill)
    )
    assert code == EXIT_RETRYABLE, said
    assert "Spark" in said
    assert "Traceback" not in said, said

    code, said = disturbed(
        [TALLY, "run"], (reads, psutil.Process.suspend), (reads_last, psutil.Process.kill)
    )
    assert code == EXIT_RETRYABLE, said
    assert "count-timeout" in said
    assert "Spark could not read" in said
    for noise in ("Traceback", "WARNING"):
        assert noise not in said, said
    assert not [path for path in temporary.rglob("*") if path.parent != temporary]
    assert [state(name)[0][0] for name in names] == ["planned", "committed", "planned"]

    assert tally("run").exit_code == 0
    assert [[state for state, _ in state(name)] for name in names] == [["committed"]] * 3
    for name, lines in zip(names, (LINES, 3, LINES), strict=True):
        (row,) = world.rows(f"select sum(log_count) as counted from `{name}`")
        assert row["counted"] == lines
    assert tally("audit").exit_code == 0


def test_a_signal_while_spark_starts_says_how_to_resume(world: World, tally: Call) -> None:
    """A real signal to a real program, right after the request was written."""
    commit(world, *[LINE] * 3)

    def end_the_program(jvm: psutil.Process) -> None:
        next(parent for parent in jvm.parents() if parent.ppid() == os.getpid()).terminate()

    replay = (TALLY, "replay", "--all", "--reason", "ticket 17", "--yes")
    code, said = disturbed(replay, (psutil.Process.is_running, end_the_program))
    assert code == 128 + signal.SIGTERM, said
    (shown,) = tally("replays", "--json").document["replays"]
    assert shown["state"] == "open"
    assert f"tally replay --resume {shown['replay_id']}" in said
    assert "Traceback" not in said
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.audit().holds


@pytest.mark.usefixtures("quiet_java")
def test_a_full_heap_says_what_to_set(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large records of a topic that is well compressed; with fewer at once the batch is counted.

    As few at once a format is tried on; stderr has none of the lines that Spark writes.
    """
    producer = world.producer(**{"compression.type": "zstd", "message.max.bytes": 1_000_000})
    for _ in range(RECORDS):
        producer.produce(world.topic, f"{LINE} {'x' * 900_000}".encode(), partition=0)
        producer.poll(0.001)
    assert producer.flush(START_S) == 0
    monkeypatch.setenv("TALLY_SPARK__MASTER", "local[1]")
    monkeypatch.setenv("TALLY_SPARK__CONF", '{"spark.driver.memory": "512m"}')
    code, said = disturbed([TALLY, "run", "--pipeline", world.name])
    assert code == EXIT_RETRYABLE, said
    assert "java.lang.OutOfMemoryError" in said
    for noise in ("An error occurred while calling", "Traceback"):
        assert noise not in said
    advice = 'reader = { "kafka.max.poll.records" = "20" }'
    assert advice in " ".join(said.split())
    world.configure(reader={"kafka.max.poll.records": "20"})
    monkeypatch.setenv("COLUMNS", "200")
    trial = f"format try {world.topic} --format log4j"
    command = [sys.executable, "-c", TOGETHER, f"run --pipeline {world.name}", trial]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert world.counts() == {"2017-07-30 14:09": RECORDS}
    assert "log4j: 9 of 9 understood" in done.stdout
    assert done.stderr == "starting Spark on local[1]\n" * 2
