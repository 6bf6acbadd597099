"""The next step when the local stack is down."""

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from tally.cli import cli
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.private_files import write_private_json


def said_next() -> tuple[int, str]:
    """The exit code of `tally status` and the next step that it names."""
    result = CliRunner().invoke(cli, ["status"])
    return result.exit_code, result.stderr.splitlines()[-1]


def test_a_stack_that_was_taken_down_is_started_again_and_any_other_server_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was started and not stopped has crashed: starting it again would hide why."""
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
        assert said_next() == (3, "next: tally up")

        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TALLY_MYSQL__PORT", str(port + 1))
            elsewhere.setenv("TALLY_MYSQL__HOST", "127.0.0.2")
            assert said_next() == (3, "next: tally doctor")

        record = home / "run" / "mysql.json"
        record.parent.mkdir()
        started = {"name": "mysql", "token": "t", "log": "l", "started_at": 1.0}
        record.write_text(json.dumps(started), encoding="utf-8")
        assert said_next() == (3, "next: tally doctor")
