"""How the stack starts a server, with a stand-in for the server; its lock and its signals."""

import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tally.errors import StackError
from tally_local.stack.interruption import interruptible
from tally_local.stack.lock import held_alone
from tally_local.stack.ports import LOOPBACK, is_free
from tally_local.stack.processes import Command
from tally_local.stack.server import Part, PartState
from tally_local.stack.stack import PORT_TRIES, Stack

LISTEN = (
    "import socket, sys, time\n"
    "server = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
    "time.sleep(600)"
)


class StandIn:
    """Listens on its port, loses it to another process ``thefts`` times, or is never ready."""

    part = Part.MYSQL
    ports = ("mysql",)
    start_timeout_s = 120.0
    stop_timeout_s = 5.0

    def __init__(self, thefts: int = 0) -> None:
        self.thefts = thefts
        self.never_ready = False
        self.stolen: list[socket.socket] = []

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Listen, where a thief does so already while thefts are left."""
        if len(self.stolen) < self.thefts:
            self.stolen.append(socket.create_server((LOOPBACK, ports["mysql"])))
        return Command(
            argv=(sys.executable, "-c", LISTEN, str(ports["mysql"])),
            cwd=Path.cwd(),
            env=dict(os.environ),
        )

    def is_ready(self, ports: Mapping[str, int]) -> bool:
        """Whether this stand-in is the one that listens."""
        if self.never_ready:
            return False
        theirs = [stolen.getsockname()[1] for stolen in self.stolen]
        return ports["mysql"] not in theirs and not is_free(ports["mysql"])

    def address(self, ports: Mapping[str, int]) -> str:
        """Where it would listen."""
        return f"{LOOPBACK}:{ports['mysql']}"


@pytest.fixture
def server() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    for stolen in server.stolen:
        stolen.close()


@pytest.fixture
def said() -> list[str]:
    """What the stack has announced."""
    return []


@pytest.fixture
def stack(tmp_path: Path, server: StandIn, said: list[str]) -> Iterator[Stack]:
    stack = Stack(project=tmp_path, servers=lambda _: server, announce=said.append)
    yield stack
    stack.down([Part.MYSQL])


def test_a_port_lost_to_a_quicker_process_is_replaced(
    stack: Stack, server: StandIn, said: list[str]
) -> None:
    """Two stacks that chose the same port at the same moment; who has noted the old one is told."""
    server.thefts = 1
    status = stack.up([Part.MYSQL])[0]
    assert status.state is PartState.RUNNING
    old, new = server.stolen[0].getsockname()[1], str(status.address).split(":")[1]
    assert f"port = {new}" in stack.layout.overlay.read_text()
    moved = f"mysql: another process has taken port {old} (mysql); from now on it is {new}"
    assert said == [
        "mysql: starting",
        moved,
        "mysql: starting",
        f"mysql: ready at {status.address}",
    ]


def test_a_server_that_is_never_ready_is_an_error(stack: Stack, server: StandIn) -> None:
    """With the last lines of its log; one that runs keeps running, so that it can be examined."""
    server.thefts = PORT_TRIES
    with pytest.raises(StackError, match=r"mysql ended while it started(.|\n)*in use"):
        stack.up([Part.MYSQL])
    server.thefts, server.never_ready, server.start_timeout_s = 0, True, 0.2
    with pytest.raises(StackError, match="mysql was not ready after"):
        stack.up([Part.MYSQL])
    assert stack.down([Part.MYSQL]) == [Part.MYSQL]


def test_what_runs_already_is_said_at_once(tmp_path: Path) -> None:
    """With what to do; afterwards it may run again."""
    lock = tmp_path / "home" / "demo.lock"
    for _ in range(2):
        with (
            held_alone(lock, "a demonstration"),
            pytest.raises(StackError, match="a demonstration runs already") as caught,
            held_alone(lock, "a demonstration"),
        ):
            pass
        assert "Ctrl-C" in caught.value.next_step


def test_a_signal_interrupts_and_a_second_one_does_not_stop_the_clean_up() -> None:
    """What cleans up on Ctrl-C cleans up on SIGTERM too, while a second Ctrl-C is ignored."""
    cleaned = []

    def work(number: signal.Signals) -> None:
        with interruptible():
            try:
                signal.raise_signal(number)
            finally:
                with interruptible(signal.SIG_IGN):
                    signal.raise_signal(signal.SIGINT)
                    cleaned.append(number)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    for number in numbers:
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt):
            work(number)
        assert signal.getsignal(number) is before
    assert cleaned == numbers
