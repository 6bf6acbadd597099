"""The local stack's Spark Connect server: it is kept running, whatever happens to its JVM."""

import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import psutil
import pytest

pytest.importorskip("pyspark")

from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.config.servers import SparkSettings
from tally.errors import AccessDeniedError, SparkUnavailableError
from tally.spark.connect import ConnectPatience, connect_session
from tally.spark.keeper import answers
from tally_local.stack.server import Part, PartState
from tally_local.stack.spark_server import SparkServer
from tally_local.stack.stack import Stack
from tests.conftest import PROJECT
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED"),
]

HUNG_S = 15.0
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
        return SparkServer(
            folder=home / Part.SPARK,
            jars=downloads.jars_dir,
            credentials=made.credentials(),
            hung_s=HUNG_S,
            stuck_s=STUCK_S,
        )

    made = Stack(project=PROJECT, home=home, servers=server)
    made.up([Part.SPARK])
    yield made
    made.down([Part.SPARK])


def settings(stack: Stack, token: str | None = None) -> SparkSettings:
    """How to reach the server."""
    address = next(s.address for s in stack.status() if s.part is Part.SPARK)
    token = stack.credentials().spark_token if token is None else token
    return SparkSettings.model_validate({"master": address, "connect_token": token})


def count(stack: Stack, token: str | None = None) -> int:
    """Count on the server; a server that is away is not waited for."""
    patience = ConnectPatience(tries=1)
    with connect_session(settings(stack, token), {}, patience) as session:
        return session.range(7).count()


def counts_again(stack: Stack) -> bool:
    try:
        return count(stack) == 7
    except SparkUnavailableError:
        return False


def jvm(stack: Stack) -> psutil.Process:
    """The server's JVM."""
    (found,) = [p for p in stack.members(Part.SPARK) if p.name() == "java"]
    return found


def engine(stack: Stack) -> str:
    """The type of the connection that Airflow's DAGs count with."""
    connections = json.loads((stack.layout.airflow / "connections.json").read_text("utf-8"))
    return str(connections["tally_spark"]["conn_type"])


def test_the_server_asks_for_its_token(stack: Stack) -> None:
    """Whoever has it counts; the token is on no command line."""
    assert count(stack) == 7
    with pytest.raises(AccessDeniedError):
        count(stack, "another")
    token = stack.credentials().spark_token
    assert all(token not in " ".join(p.cmdline()) for p in stack.members(Part.SPARK))


def test_the_server_listens_on_the_loopback_address_alone(stack: Stack) -> None:
    """Nobody else on the network can ask it."""
    listening = [c for c in jvm(stack).net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert listening
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_a_server_that_is_gone_is_started_again(stack: Stack, number: signal.Signals) -> None:
    """At the same address, with the same token; the part counts as running all the time."""
    before = jvm(stack)
    before.send_signal(number)
    wait_until(lambda: not before.is_running() or before.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: counts_again(stack))
    assert jvm(stack).pid != before.pid
    (status,) = {(s.state, s.pid) for s in stack.status() if s.part is Part.SPARK}
    assert status[0] is PartState.RUNNING


def test_a_server_without_memory_ends_instead_of_answering_wrongly(stack: Stack) -> None:
    """The keeper starts another one."""
    before = jvm(stack)
    with connect_session(settings(stack), {}) as session:
        with pytest.raises(Exception, match=r".*"):  # whatever the dying JVM says
            session.sql("select sequence(0, 2000000000)").collect()
        wait_until(lambda: not before.is_running() or before.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: counts_again(stack))


def test_a_server_whose_task_does_not_end_is_replaced(stack: Stack) -> None:
    """Cancelling is not enough: a regular expression heeds no interrupt, and keeps a core."""
    before = jvm(stack)
    with connect_session(settings(stack), {}) as session:
        # Of the row's number, so that no planner evaluates it.
        text = F.concat(F.lit("a"), F.repeat(F.lit("a"), 4_000 + F.col("id").cast("int")))
        rows = session.range(0, 1, numPartitions=1).where(text.rlike(BUSY_PATTERN))
        is_at_work = Event()

        def told(*, inflight_tasks: int, **_: Any) -> None:
            if inflight_tasks:
                is_at_work.set()

        session.registerProgressHandler(told)
        with ThreadPoolExecutor() as pool:
            found = pool.submit(rows.collect)
            wait_until(is_at_work.is_set)
            session.interruptAll()
            with pytest.raises(SparkConnectException):
                found.result()
        assert before.is_running()
        wait_until(lambda: not before.is_running() or before.status() == psutil.STATUS_ZOMBIE)
    wait_until(lambda: counts_again(stack))
    log = (stack.layout.logs / "spark.log").read_text(encoding="utf-8")
    assert "keeper: a task of the server went on after it was cancelled" in log


def test_a_server_that_is_stopped_stays_stopped(stack: Stack) -> None:
    """Neither keeper nor JVM is left, nobody is sent there; it runs again when it is asked for."""
    port = int(str(settings(stack).master).rpartition(":")[2])
    assert "sc://" in stack.overlay.read_text(encoding="utf-8")
    assert engine(stack) == "spark_connect"
    stack.down([Part.SPARK])
    assert "sc://" not in stack.overlay.read_text(encoding="utf-8")
    assert engine(stack) == "spark"
    assert stack.members(Part.SPARK) == []
    assert not answers(port, timeout_s=1)
    stack.up([Part.SPARK])
    assert count(stack) == 7


def test_a_port_that_is_taken_is_replaced(stack: Stack) -> None:
    """The address that everybody reads follows."""
    stack.down([Part.SPARK])
    port = int(str(settings(stack).master).rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        stack.up([Part.SPARK])
        assert settings(stack).master in stack.overlay.read_text(encoding="utf-8")
        assert not settings(stack).master.endswith(f":{port}")
        assert count(stack) == 7
