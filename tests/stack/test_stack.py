"""The real servers: whatever is killed when, the data come back and nothing is left behind.

Each test has a home of its own for its servers; only the downloads are the checkout's.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pymysql
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tally.errors import StackError
from tally_local.stack.processes import TOKEN_VARIABLE
from tally_local.stack.server import Part, PartState, PartStatus
from tally_local.stack.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.stack

PROJECT = Path(__file__).parents[2]
SERVERS = (Part.KAFKA, Part.MYSQL)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka and MySQL in a folder with spaces and letters that are not ASCII."""
    home = tmp_path_factory.mktemp("my stäck", numbered=False) / "of tally"
    stack = Stack(project=PROJECT, home=home)
    stack.up(SERVERS)
    yield stack
    stack.down()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack of which nothing runs yet."""
    stack = Stack(project=PROJECT, home=tmp_path / "home")
    yield stack
    stack.down()


def status(stack: Stack, part: Part) -> PartStatus:
    return next(status for status in stack.status() if status.part is part)


def address(stack: Stack, part: Part) -> str:
    found = status(stack, part).address
    assert found is not None
    return found


def mysql(stack: Stack) -> "pymysql.Connection[Any]":
    host, port = address(stack, Part.MYSQL).split(":")
    return pymysql.connect(
        host=host,
        port=int(port),
        user="tally",
        password=stack.credentials().mysql_tally,
        database="tally",
        autocommit=True,
    )


def processes_of(stack: Stack) -> list[psutil.Process]:
    """All living processes that the stack started, found without its records."""
    tokens = {json.loads(path.read_text())["token"] for path in stack.layout.run.glob("[!.]*.json")}
    return [process for process in psutil.process_iter() if token_of(process) in tokens]


def token_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(TOKEN_VARIABLE)
    except psutil.Error:
        return None


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def front(stack: Stack, action: str, *parts: str) -> "subprocess.Popen[str]":
    """``python -m tally_local.stack`` in a process of its own, its progress readable."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tally_local.stack", action, *parts),
            *("--project", str(PROJECT), "--home", str(stack.layout.home)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    )


def read_until(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the front ended without saying {text!r}")


def test_a_killed_mysql_comes_back_with_its_data(running: Stack) -> None:
    """And the crash is reported with the last lines of its log; Kafka is left alone."""
    with mysql(running) as connection, connection.cursor() as cursor:
        cursor.execute("create table kept (number int primary key)")
        cursor.execute("insert into kept values (42)")
    kafka = status(running, Part.KAFKA).pid
    running.kill(Part.MYSQL)
    crashed = status(running, Part.MYSQL)
    assert crashed.state is PartState.CRASHED
    assert any("ready for connections" in line for line in crashed.log_tail)
    with pytest.raises(StackError, match=r"mysql crashed(.|\n)*ready for connections"):
        running.watch(SERVERS)
    # The process id in the lock that a killed server leaves now belongs to another process.
    (running.layout.home / "mysql" / "data" / "mysql.sock.lock").write_text(f"{os.getpid()}\n")
    running.up(SERVERS)
    with mysql(running) as connection, connection.cursor() as cursor:
        cursor.execute("select number from kept")
        assert cursor.fetchall() == ((42,),)
        cursor.execute("drop table kept")
    assert status(running, Part.KAFKA).pid == kafka


def test_servers_that_another_command_stops_have_not_crashed(running: Stack) -> None:
    """A caller that asks while they are stopping waits, and learns that they were stopped."""
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(running.down, SERVERS)
        running.watch(SERVERS)
        assert sorted(stopping.result(60)) == sorted(SERVERS)
    assert sorted(running.stopped(SERVERS)) == sorted(SERVERS)
    running.up(SERVERS)
    assert running.stopped(SERVERS) == []


def test_a_killed_kafka_comes_back_with_its_topics(running: Stack) -> None:
    """The cluster id stays too."""

    def ask() -> tuple[str, list[str]]:
        admin = AdminClient({"bootstrap.servers": address(running, Part.KAFKA)})
        cluster = admin.describe_cluster(request_timeout=20).result()
        return cluster.cluster_id, list(admin.list_topics(timeout=20).topics)

    admin = AdminClient({"bootstrap.servers": address(running, Part.KAFKA)})
    admin.create_topics([NewTopic("kept", 2)])["kept"].result(20)
    # A new topic is listed a moment after it was created.
    wait_until(lambda: "kept" in ask()[1])
    before = ask()
    running.kill(Part.KAFKA)
    running.up(SERVERS)
    assert ask() == before
    assert "kept" in before[1]


def test_up_on_a_running_stack_changes_nothing(running: Stack) -> None:
    """Same processes, same ports, the overlay untouched."""
    before = [(status.pid, status.address) for status in running.status()]
    written = running.overlay.stat().st_mtime_ns
    running.up(SERVERS)
    assert [(status.pid, status.address) for status in running.status()] == before
    assert running.overlay.stat().st_mtime_ns == written


def test_passwords_are_in_private_files_only(running: Stack) -> None:
    """In no command line, no environment and no log; no server accepts a client without one."""
    secrets = {running.credentials().mysql_root, running.credentials().mysql_tally}
    for process in processes_of(running):
        text = " ".join([*process.cmdline(), *process.environ().values()])
        assert not any(secret in text for secret in secrets)
    holders = [
        path
        for path in running.layout.home.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]
    assert running.overlay in holders
    assert {path.stat().st_mode & 0o777 for path in holders} == {0o600}
    host, port = address(running, Part.MYSQL).split(":")
    for user in ("root", "tally", ""):
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            pymysql.connect(host=host, port=int(port), user=user, password="")


def test_servers_listen_on_the_loopback_address_only(running: Stack) -> None:
    """Other machines on a public network must not reach them."""
    connections = [
        connection for process in processes_of(running) for connection in process.net_connections()
    ]
    addresses = {
        connection.laddr.ip for connection in connections if connection.status == psutil.CONN_LISTEN
    }
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert addresses


def test_down_ends_exactly_what_was_started(stack: Stack, running: Stack) -> None:
    """Another stack and an unrelated process keep running; a second down finds nothing."""
    stack.up([Part.MYSQL])
    ours = processes_of(stack)
    theirs = processes_of(running)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        assert stack.down() == [Part.MYSQL]
        assert ours
        assert not any(is_alive(process) for process in ours)
        assert len(theirs) >= 2
        assert all(is_alive(process) for process in theirs)
        assert stranger.poll() is None
        stranger.kill()
    assert stack.down() == []


def test_a_part_that_cannot_start_says_why(stack: Stack) -> None:
    """The error has the last lines of its log."""
    (stack.layout.home / "kafka" / "data").mkdir(parents=True)
    with pytest.raises(StackError, match=r"kafka ended while it started(.|\n)*meta\.properties"):
        stack.up([Part.KAFKA])
    assert status(stack, Part.KAFKA).state is PartState.CRASHED
    assert processes_of(stack) == []


def test_a_killed_front_leaves_nothing_that_down_does_not_find(stack: Stack) -> None:
    """SIGKILL right after the first server was started, before it is ready."""
    with front(stack, "foreground", "kafka") as process:
        read_until(process, "kafka: starting")
        while not processes_of(stack):
            time.sleep(0.01)
        process.kill()
    left = processes_of(stack)
    assert left
    assert stack.down() == [Part.KAFKA]
    assert not any(is_alive(process) for process in left)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_front_ends_the_stack_in_order(
    running: Stack, number: signal.Signals
) -> None:
    """MySQL shuts down, it is not killed."""
    running.down([Part.MYSQL])
    with front(running, "foreground", "mysql") as process:
        read_until(process, "mysql    running")
        process.send_signal(number)
        assert process.wait(60) == 0
    assert status(running, Part.MYSQL).state is PartState.STOPPED
    assert "Shutdown complete" in status(running, Part.MYSQL).log.read_text()
    running.up(SERVERS)


def test_two_ups_at_once_start_one_server(stack: Stack) -> None:
    """The second waits for the first and finds its work done."""
    with front(stack, "up", "mysql") as first, front(stack, "up", "mysql") as second:
        said = [process.communicate(timeout=120)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert sum("mysql: starting" in text for text in said) == 1
    assert all("mysql: ready" in text for text in said)


def test_a_port_that_was_taken_meanwhile_is_replaced(stack: Stack) -> None:
    """All callers get the new address."""
    stack.up([Part.MYSQL])
    before = address(stack, Part.MYSQL)
    stack.down()
    host, port = before.split(":")
    listen = (
        f"import socket; s = socket.create_server(({host!r}, {port})); "
        "print('there', flush=True); s.accept()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True
    ) as other:
        read_until(other, "there")
        stack.up([Part.MYSQL])
        other.kill()
    after = address(stack, Part.MYSQL)
    assert after != before
    assert f"port = {after.split(':')[1]}" in stack.overlay.read_text()
    with mysql(stack) as connection:
        assert connection.get_server_info()
