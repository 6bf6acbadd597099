"""Ports are chosen once and kept."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from tally.errors import StackError
from tally_local.stack.home import write_private_json
from tally_local.stack.ports import LOOPBACK, PORTS, Ports, is_free


def on_a_quiet_machine(path: Path, candidates: Sequence[int] = PORTS) -> Ports:
    """Every port is free, whatever other processes do meanwhile."""
    return Ports(path, candidates=candidates, is_free=lambda _: True)


def test_a_chosen_port_is_remembered_and_never_shared(tmp_path: Path) -> None:
    """A server that does not run keeps its port from the others."""
    chosen = on_a_quiet_machine(tmp_path / "ports.json").choose(("kafka", "mysql"))
    assert on_a_quiet_machine(tmp_path / "ports.json").choose(("kafka", "mysql")) == chosen
    assert chosen["kafka"] != chosen["mysql"]
    ports = on_a_quiet_machine(tmp_path / "others.json", range(31_990, 31_992))
    ports.choose(("kafka",))
    ports.choose(("mysql",))
    assert len(set(ports.remembered().values())) == 2
    with pytest.raises(StackError, match="no free port"):
        ports.choose(("airflow",))


def test_a_port_that_another_process_took_is_replaced(tmp_path: Path) -> None:
    """A stack does not insist on a port that another process listens on by now."""
    ports = Ports(tmp_path / "ports.json")
    with socket.create_server((LOOPBACK, 0)) as other:
        before = other.getsockname()[1]
        write_private_json(tmp_path / "ports.json", {"mysql": before})
        assert not is_free(before)
        after = ports.choose(("mysql",))["mysql"]
    assert after != before
    assert ports.remembered() == {"mysql": after}
    # A process that listens on all addresses listens on the loopback address too.
    with socket.create_server(("0.0.0.0", 0)) as other:  # noqa: S104 - the case under test
        assert not is_free(other.getsockname()[1])
