"""Spark Connect servers: they are kept running, whatever happens to their JVM."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark")

from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.config.servers import SparkSettings
from tally.errors import AccessDeniedError, SparkUnavailableError
from tally.spark.connect import connect_session
from tally.spark.connect_server import answers
from tally_local.stack.server import Part, PartState
from tally_local.stack.spark_server import SparkServer
from tally_local.stack.stack import Stack
from tests.chaos.attack import arguments
from tests.servers import PROJECT, TALLY
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED"),
]

TOKEN = "a token"  # noqa: S105 - of a server that only its test asks
STUCK_S = 2
# It tries all ways in which four thousand letters can be shared by six words.
BUSY_PATTERN = r"\w*\w*\w*\w*\w*\w* [A-Z]+"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack whose Spark server runs; a JVM that does not answer is soon replaced."""
    downloads = Stack(project=PROJECT)
    downloads.install()
    home = tmp_path_factory.mktemp("a home")

    def server(_: Part) -> SparkServer:
        return SparkServer(layout=made.layout, hung_s=15.0, stuck_s=STUCK_S)

    made = Stack(project=PROJECT, home=home, servers=server)
    made.up([Part.SPARK])
    yield made
    made.down([Part.SPARK])


def settings(stack: Stack, token: str | None = None) -> SparkSettings:
    """How to reach the server."""
    address = next(s.address for s in stack.status() if s.part is Part.SPARK)
    token = stack.credentials().spark_token if token is None else token
    return SparkSettings.model_validate({"master": address, "connect_token": token})


def counts(server: SparkSettings) -> bool:
    """Whether the server counts now; one that is away is not waited for."""
    try:
        with connect_session(server, {}, tries=1) as session:
            return session.range(7).count() == 7
    except SparkUnavailableError:
        return False


def jvm(stack: Stack) -> psutil.Process:
    """The server's JVM."""
    (found,) = [p for p in stack.processes.members(Part.SPARK) if p.name() == "java"]
    return found


def sent_to_the_server(stack: Stack) -> bool:
    """Whether commands and Airflow's DAGs count on the server."""
    connections = json.loads((stack.layout.airflow / "connections.json").read_text("utf-8"))
    kind = connections["tally_spark"]["conn_type"]
    overlay = "sc://" in stack.layout.overlay.read_text(encoding="utf-8")
    assert kind == ("spark_connect" if overlay else "spark")
    return overlay


def log(stack: Stack) -> str:
    return (stack.layout.logs / "spark.log").read_text(encoding="utf-8")


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_only_who_has_the_token_counts(stack: Stack) -> None:
    """The token is on no command line, and nobody else on the network can ask."""
    assert counts(settings(stack))
    with pytest.raises(AccessDeniedError):
        counts(settings(stack, "another"))
    token = stack.credentials().spark_token
    lines = [" ".join(process.cmdline()) for process in stack.processes.members(Part.SPARK)]
    assert all(token not in line for line in lines)
    assert any("--master local[2]" in line for line in lines)
    listening = [c for c in jvm(stack).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}


def test_a_server_whose_task_does_not_end_is_replaced(stack: Stack) -> None:
    """Cancelling is not enough: a regular expression heeds no interrupt, and keeps a core."""
    before = jvm(stack)
    with connect_session(settings(stack), {}) as session:
        # Of the row's number, so that no planner evaluates it.
        text = F.concat(F.lit("a"), F.repeat(F.lit("a"), 4_000 + F.col("id").cast("int")))
        rows = session.range(0, 1, numPartitions=1).where(text.rlike(BUSY_PATTERN))
        at_work: list[int] = []
        session.registerProgressHandler(lambda inflight_tasks, **_: at_work.append(inflight_tasks))
        with ThreadPoolExecutor() as pool:
            found = pool.submit(rows.collect)
            wait_until(lambda: any(at_work))
            session.interruptAll()
            with pytest.raises(SparkConnectException):
                found.result()
        assert before.is_running()
        wait_until(lambda: has_ended(before))
    wait_until(lambda: counts(settings(stack)))
    assert "keeper: a task of the server went on after it was cancelled" in log(stack)


HOLDS_ALL_SLOTS = """
import json, os, signal, sys
from tally.config.servers import SparkSettings
from tally.spark.connect import connect_session

def stop(batches):
    os.kill(os.getpid(), signal.SIGSTOP)
    yield from batches

with connect_session(SparkSettings.model_validate(json.loads(sys.argv[1])), {}) as session:
    session.range(0, 4, 1, 4).mapInArrow(stop, "id bigint").collect()
"""


def test_workers_that_a_killed_driver_has_left_hold_no_slot(stack: Stack) -> None:
    """Spark's own patience with a driver that is gone is seven minutes."""
    server = settings(stack)
    keys = {"master": server.master, "connect_token": server.connect_token.get_secret_value()}
    before = jvm(stack)

    def stopped() -> list[psutil.Process]:
        return [p for p in before.children(recursive=True) if p.status() == psutil.STATUS_STOPPED]

    with subprocess.Popen([sys.executable, "-c", HOLDS_ALL_SLOTS, json.dumps(keys)]) as driver:
        wait_until(lambda: len(stopped()) == 2)
        driver.kill()
    with ThreadPoolExecutor() as pool:
        assert pool.submit(counts, server).result(240)
    wait_until(lambda: not stopped())
    assert before.is_running()


def test_a_driver_that_waits_is_not_taken_for_one_that_is_gone(stack: Stack) -> None:
    """Its call ends more often, and is made again."""

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        time.sleep(3 * STUCK_S)
        yield from batches

    with connect_session(settings(stack), {}) as session:
        assert session.range(0, 1, 1, 1).mapInArrow(slowly, "id bigint").count() == 1


def test_a_hung_server_is_started_again(stack: Stack) -> None:
    """At the same address, with the same token; the part counts as running all the time."""
    before = jvm(stack)
    before.send_signal(signal.SIGSTOP)
    wait_until(lambda: has_ended(before))
    wait_until(lambda: counts(settings(stack)))
    assert jvm(stack).pid != before.pid
    assert {s.state for s in stack.status() if s.part is Part.SPARK} == {PartState.RUNNING}


def test_a_server_without_memory_ends_instead_of_answering_wrongly(stack: Stack) -> None:
    """The keeper starts another one, until it is told to stop: then nobody is sent there."""
    before = jvm(stack)
    with connect_session(settings(stack), {}) as session:
        with pytest.raises(Exception, match=r".*"):  # whatever the dying JVM says
            session.sql("select sequence(0, 2000000000)").collect()
        wait_until(lambda: has_ended(before))
    wait_until(lambda: re.search(r"ended with exit code 3 .* it is started again", log(stack)))
    port = int(str(settings(stack).master).rpartition(":")[2])
    assert sent_to_the_server(stack)
    stack.down([Part.SPARK])
    assert not sent_to_the_server(stack)
    assert stack.processes.members(Part.SPARK) == []
    assert not answers(port, timeout_s=1)


def test_a_server_of_ones_own_counts_until_it_is_told_to_end(tmp_path: Path) -> None:
    """It asks for its token, which no command line has, and leaves nothing behind.

    Spark's own defaults apply to it, and no variable makes a client of it. Without a token it is
    refused: everybody on the machine could count on it.
    """
    folder = tmp_path / "a folder"
    (folder / "tmp").mkdir(parents=True)
    jars = Stack(project=PROJECT).jars_dir
    (folder / "tally.toml").write_text(f'[spark]\njars_dir = "{jars}"\n', encoding="utf-8")
    defaults = "spark.sql.debug.maxToStringFields 77\n"
    (folder / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
    command = [TALLY, "--config", folder / "tally.toml", "connect-server"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "spark.connect_token is missing" in done.stderr
    assert "TALLY_SPARK__CONNECT_TOKEN" in done.stderr
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    variables = {
        "TALLY_SPARK__CONNECT_TOKEN": TOKEN,
        "TMPDIR": str(folder / "tmp"),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_REMOTE": "sc://localhost:1",
    }
    own = SparkSettings.model_validate({"master": f"sc://localhost:{port}", "connect_token": TOKEN})
    with subprocess.Popen(
        [*command, "--master", "local[1]", "--port", str(port)], env={**os.environ, **variables}
    ) as process:
        try:
            wait_until(lambda: counts(own))
            with connect_session(own, {}) as session:
                assert session.conf.get("spark.sql.debug.maxToStringFields") == "77"
            family = [psutil.Process(process.pid)]
            family += family[0].children(recursive=True)
            commands = list(map(arguments, family))
            assert sum("spark-internal" in command for command in commands) == 1
            assert all(TOKEN not in " ".join(command) for command in commands)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert not any(map(arguments, family))
    assert list((folder / "tmp").iterdir()) == []
