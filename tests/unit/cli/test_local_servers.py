"""The next step when the local stack is down."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tally.cli import cli
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.private_files import write_private_json

Files = tuple[Path, int]


@pytest.fixture
def stack_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """A checkout whose local MySQL was started once and is stopped; its hidden folder and port."""
    home = tmp_path / ".tally"
    home.mkdir()
    config = tmp_path / "tally.toml"
    config.write_text('[pipelines.first]\ntopics = ["a"]\n', encoding="utf-8")
    monkeypatch.setenv("TALLY_CONFIG", str(config))
    with socket.socket() as silent:
        silent.bind((LOOPBACK, 0))  # bound without listen, so connections are refused
        port = silent.getsockname()[1]
        write_private_json(home / "ports.json", {"mysql": port})
        overlay = f'[mysql]\nhost = "{LOOPBACK}"\nport = {port}\n'
        (home / "stack.toml").write_text(overlay, encoding="utf-8")
        yield home, port


def said_next() -> tuple[int, str]:
    """The exit code of `tally status` and the next step that it names."""
    result = CliRunner().invoke(cli, ["status"])
    return result.exit_code, result.stderr.splitlines()[-1]


@pytest.mark.usefixtures("stack_down")
def test_a_stack_that_was_taken_down_is_started_again() -> None:
    """There is nothing to examine: it was stopped on purpose."""
    assert said_next() == (3, "next: tally up")


def test_a_server_that_crashed_is_examined(stack_down: Files) -> None:
    """It was started and not stopped: starting it again would hide why."""
    record = stack_down[0] / "run" / "mysql.json"
    record.parent.mkdir()
    started = {"name": "mysql", "token": "t", "log": "l", "started_at": 1.0}
    record.write_text(json.dumps(started), encoding="utf-8")
    assert said_next() == (3, "next: tally doctor")


def test_another_server_than_the_stacks_is_examined(
    stack_down: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local stack is down, but another server does not answer."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", str(stack_down[1] + 1))
    monkeypatch.setenv("TALLY_MYSQL__HOST", "127.0.0.2")
    assert said_next() == (3, "next: tally doctor")
