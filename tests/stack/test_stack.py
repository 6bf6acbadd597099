"""The real servers: whatever is killed when, the data come back and nothing is left behind.

And what they need: Spark's connector, fetched by the real Ivy.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pymysql
import pytest

from tally.errors import StackError
from tally.spark.jars import CONNECTOR, check, install_connector
from tally_local.stack.processes import TOKEN_VARIABLE, Command
from tally_local.stack.server import Part, PartState, PartStatus
from tally_local.stack.stack import Stack
from tests.servers import PROJECT, SERVERS
from tests.waiting import wait_until

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of which nothing runs before a test and after it.

    It is in a folder with spaces and letters that are not ASCII.
    """
    home = tmp_path_factory.mktemp("my stäck", numbered=False) / "of tally"
    stack = Stack(project=PROJECT, home=home)
    yield stack
    stack.down()


def status(stack: Stack, part: Part) -> PartStatus:
    return next(status for status in stack.status() if status.part is part)


def at(stack: Stack) -> tuple[str, int]:
    """Where MySQL listens."""
    host, _, port = str(status(stack, Part.MYSQL).address).partition(":")
    return host, int(port)


def mysql(stack: Stack) -> "pymysql.Connection[Any]":
    host, port = at(stack)
    user = {"user": "tally", "password": stack.credentials().mysql_tally}
    return pymysql.connect(host=host, port=port, database="tally", autocommit=True, **user)


def processes_of(stack: Stack) -> list[psutil.Process]:
    """All living processes that the stack started, found without its records."""
    tokens = {json.loads(path.read_text())["token"] for path in stack.layout.run.glob("[!.]*.json")}
    # None for the environment of a process that one may not look into.
    return [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(TOKEN_VARIABLE) in tokens
    ]


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


FRONT = """
import sys
from functools import partial
from pathlib import Path
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
project, home, action, name = sys.argv[1:]
part = Part(name)
say = partial(print, flush=True)
stack = Stack(project=Path(project), home=Path(home), announce=say)
try:
    if action == "up":
        stack.up([part])
    else:
        with stack.foreground([part]):
            say(part, "runs")
            stack.watch([part])
except KeyboardInterrupt:
    pass
"""


def front(stack: Stack, action: str, part: Part) -> "subprocess.Popen[str]":
    """A process that starts a server, as ``tally up`` does; its progress is readable."""
    folders = (str(PROJECT), str(stack.layout.home))
    return subprocess.Popen(
        [sys.executable, "-c", FRONT, *folders, action, part],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT / 'local' / 'src'}"},
    )


def read_until(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    assert any(text in line for line in process.stdout), f"the front has not said {text!r}"


def test_a_killed_mysql_comes_back_with_its_data(own_stack: Stack) -> None:
    """And the crash is reported with the last lines of its log; Kafka is left alone.

    A port that was taken meanwhile is replaced, and all callers get the new address.
    """
    with mysql(own_stack) as connection, connection.cursor() as cursor:
        cursor.execute("create table kept select 42 as number")
    kafka = status(own_stack, Part.KAFKA).pid
    own_stack.processes.kill(Part.MYSQL)
    assert status(own_stack, Part.MYSQL).state is PartState.CRASHED
    with pytest.raises(StackError, match=r"mysql crashed(.|\n)*ready for connections"):
        own_stack.watch(SERVERS)
    # The process id in the lock that a killed server leaves now belongs to another process.
    (own_stack.layout.home / "mysql" / "data" / "mysql.sock.lock").write_text(f"{os.getpid()}\n")
    with socket.create_server(before := at(own_stack)):
        own_stack.up(SERVERS)
    assert at(own_stack) != before
    assert f"port = {at(own_stack)[1]}" in own_stack.layout.overlay.read_text()
    with mysql(own_stack) as connection, connection.cursor() as cursor:
        cursor.execute("select number from kept")
        assert cursor.fetchall() == ((42,),)
        cursor.execute("drop table kept")
    assert status(own_stack, Part.KAFKA).pid == kafka


def test_servers_that_another_command_stops_have_not_crashed(own_stack: Stack) -> None:
    """A caller that asks while they are stopping waits, and learns that they were stopped."""
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(own_stack.down, [Part.MYSQL])
        own_stack.watch([Part.MYSQL])
        assert stopping.result(60) == [Part.MYSQL]
    assert own_stack.stopped(SERVERS) == [Part.MYSQL]
    own_stack.up(SERVERS)
    assert own_stack.stopped(SERVERS) == []
    # A second `up` changes no process, no port and no overlay.
    before = [(status.pid, status.address) for status in own_stack.status()]
    written = own_stack.layout.overlay.stat().st_mtime_ns
    own_stack.up(SERVERS)
    assert [(status.pid, status.address) for status in own_stack.status()] == before
    assert own_stack.layout.overlay.stat().st_mtime_ns == written


def test_passwords_are_in_private_files_and_servers_listen_on_loopback(own_stack: Stack) -> None:
    """In no command line, no environment and no log; no server accepts a client without one."""
    secrets = {own_stack.credentials().mysql_root, own_stack.credentials().mysql_tally}
    for process in processes_of(own_stack):
        text = " ".join([*process.cmdline(), *process.environ().values()])
        assert not any(secret in text for secret in secrets)
    holders = []
    for path in own_stack.layout.home.rglob("*"):
        with suppress(FileNotFoundError):  # the servers write and delete meanwhile
            if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets):
                holders.append(path)
    assert own_stack.layout.overlay in holders
    assert {path.stat().st_mode & 0o777 for path in holders} == {0o600}
    host, port = at(own_stack)
    for user in ("root", "tally", ""):
        with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
            pymysql.connect(host=host, port=port, user=user, password="")
    # Other machines on a public network must not reach them.
    connections = [c for process in processes_of(own_stack) for c in process.net_connections()]
    addresses = {c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN}
    assert {ip.removeprefix("::ffff:") for ip in addresses} == {"127.0.0.1"}


def test_a_killed_front_leaves_nothing_that_down_does_not_find(other: Stack) -> None:
    """SIGKILL right after a server was started; whoever comes next waits until it is ready."""
    with front(other, "foreground", Part.KAFKA) as process:
        read_until(process, "kafka: starting")
        wait_until(lambda: processes_of(other))
        process.kill()
    left = processes_of(other)
    assert left
    assert [started.state for started in other.up([Part.KAFKA])] == [PartState.RUNNING]
    assert {process.pid for process in left} <= {process.pid for process in processes_of(other)}
    assert other.down() == [Part.KAFKA]
    assert not any(is_alive(process) for process in left)


def test_a_signal_to_the_front_ends_the_stack_in_order(other: Stack) -> None:
    """MySQL shuts down, it is not killed."""
    with front(other, "foreground", Part.MYSQL) as process:
        read_until(process, "mysql runs")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert status(other, Part.MYSQL).state is PartState.STOPPED
    assert "Shutdown complete" in (other.layout.logs / "mysql.log").read_text()


def test_two_ups_start_one_server_that_down_ends(other: Stack, migrated: Stack) -> None:
    """The second waits for the first and finds its work done; a second down finds nothing.

    Another stack and an unrelated process keep running.
    """
    with front(other, "up", Part.MYSQL) as first, front(other, "up", Part.MYSQL) as second:
        said = [process.communicate(timeout=120)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert sum("mysql: starting" in text for text in said) == 1
    assert all("mysql: ready" in text for text in said)
    ours = processes_of(other)
    theirs = processes_of(migrated)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        assert other.down() == [Part.MYSQL]
        assert ours
        assert not any(is_alive(process) for process in ours)
        assert len(theirs) >= 2
        assert all(is_alive(process) for process in theirs)
        assert stranger.poll() is None
        stranger.kill()
    assert other.down() == []


def sleeper(part: Part) -> Any:
    """A stand-in for the server of a part."""
    return SimpleNamespace(
        part=part,
        ports=(str(part),),
        start_timeout_s=60.0,
        stop_timeout_s=60.0,
        prepare=lambda _: Command(argv=("sleep", "600"), cwd=Path.cwd(), env=dict(os.environ)),
        is_ready=lambda _: True,
        address=lambda ports: f"localhost:{ports[part]}",
    )


def test_the_spark_server_goes_where_the_cluster_goes(tmp_path: Path) -> None:
    """It counts on the cluster from its start to its stop, and is not left without it."""
    stack = Stack(project=PROJECT, home=tmp_path, servers=sleeper)
    both = [Part.CLUSTER, Part.SPARK]
    try:
        stack.up([Part.SPARK])
        alone = status(stack, Part.SPARK).pid
        assert Part.CLUSTER not in {status.part for status in stack.status()}
        stack.up([Part.CLUSTER])
        assert stack.stopped(both) == []
        assert status(stack, Part.SPARK).pid != alone
        # The server is told where it counts when it starts: by then the cluster was started.
        begun = [stack.processes.members(part)[0].create_time() for part in both]
        assert begun == sorted(begun)
        assert stack.down([Part.CLUSTER]) == [Part.SPARK, Part.CLUSTER]
        assert stack.stopped(both) == both
        stack.watch([Part.CLUSTER, Part.CLUSTER])  # as `tally up cluster --cluster --foreground`
        assert Part.CLUSTER not in {status.part for status in stack.status()}
    finally:
        stack.down()


def test_the_connector_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged jar is replaced; a second call leaves the folder as it is."""
    # Ivy finds there what the set-up has fetched, and needs no network.
    cache = PROJECT / ".tally" / "downloads" / "ivy" / "cache"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f'"-Divy.cache.dir={cache}"')
    folder = tmp_path / "a folder" / "jars"
    folder.mkdir(parents=True)
    wanted = CONNECTOR.checksums["spark"]
    (folder / min(wanted)).write_bytes(b"damaged")
    told: list[str] = []
    found = install_connector(folder, told.append)
    check(folder, wanted)
    assert {jar.name for jar in found} == wanted.keys()
    assert told
    told.clear()
    assert install_connector(folder, told.append) == found
    assert told == []
