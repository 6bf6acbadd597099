"""The configuration and the pipeline of a command, its confirmation, and its next step."""

import json
import socket
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tally.cli.app import App
from tally.cli.set_up import _mention_unknown
from tally.cli.tree import cli
from tally.errors import EXIT_FINDINGS, EXIT_USAGE, UnknownPipelineError, UsageError
from tally_local.stack.home import write_private_json
from tally_local.stack.ports import LOOPBACK

ONE = '[pipelines.first]\ntopics = ["a"]\n'
TWO = ONE + '[pipelines.second]\ntopics = ["b"]\n'


def app(folder: Path, text: str = ONE) -> App:
    path = folder / "tally.toml"
    path.write_text(text, encoding="utf-8")
    return App(config=path)


def test_a_misspelt_dag_is_named_before_airflow_takes_it_for_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other DAGs are none of Tally's business, and a configuration is not needed."""
    config = tmp_path / "tally.toml"
    for text in ('[pipelines.error_log]\ntopics = ["a"]\n', "no TOML"):
        config.write_text(text, encoding="utf-8")
        _mention_unknown(App(config=config), ["error_log", "error_log_audit", "error_lgo", "etl"])
    told = "Tally has no DAG error_lgo; did you mean error_log?\n"
    assert capsys.readouterr().err == told


def test_of_several_pipelines_one_must_be_named(tmp_path: Path) -> None:
    """Nothing is guessed: the error lists the names."""
    assert app(tmp_path).pipeline(None) == "first"
    with pytest.raises(UnknownPipelineError, match="third"):
        app(tmp_path).pipeline("third")
    with pytest.raises(UsageError, match="first, second"):
        app(tmp_path, TWO).pipeline(None)
    assert app(tmp_path, TWO).pipeline("second") == "second"


def test_a_wrong_pipeline_is_shown_though_it_is_the_only_one(tmp_path: Path) -> None:
    """As one of several is, by what needs no server; whoever counts is told its mistakes."""
    config = tmp_path / "tally.toml"
    config.write_text(f'{ONE}labels = ["service"]\n', encoding="utf-8")

    def call(*words: str) -> Result:
        return CliRunner().invoke(cli, ["--config", str(config), *words], obj=App())

    for command in ("pipelines", "status"):
        shown = call(command, "--json")
        assert (shown.exit_code, json.loads(shown.stdout)["health"]) == (0, "fail")
        text = call(command, "--check")
        assert text.exit_code == EXIT_FINDINGS
        assert text.stdout.count("(line 3)") == 1
        assert "FAIL  first: disabled: pipelines.first.labels" in text.stdout
    for command in ("run", "plan", "replay --all --dry-run", "counts", "status first"):
        refused = call(*command.split())
        assert (refused.exit_code, refused.stdout) == (EXIT_USAGE, ""), command
        assert "config-invalid: pipeline first is not valid" in refused.stderr


def test_the_option_wins_over_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--config, then TALLY_CONFIG, then ./tally.toml."""
    monkeypatch.setenv("TALLY_CONFIG", str(tmp_path / "variable.toml"))
    assert App(config=tmp_path / "option.toml").config_path == tmp_path / "option.toml"
    assert App().config_path == tmp_path / "variable.toml"
    monkeypatch.delenv("TALLY_CONFIG")
    monkeypatch.chdir(tmp_path)
    assert App().config_path == tmp_path / "tally.toml"


def test_only_a_yes_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that forgot --yes fails instead of hanging or deciding."""
    asked = app(tmp_path)
    with pytest.raises(UsageError, match="no terminal"):
        asked.confirm("Really?", yes=False)
    asked.confirm("Really?", yes=True)

    @click.command()
    def ask() -> None:
        # The stream is click's own, which is no terminal and cannot be told to be one.
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        asked.confirm("Really?", yes=False)

    answers = [CliRunner().invoke(ask, input=answer) for answer in ("y\n", "n\n", "\n")]
    assert [(answer.exit_code, answer.stdout) for answer in answers] == [(0, ""), (1, ""), (1, "")]


def test_a_decision_needs_a_reason_that_fits() -> None:
    """The ledger keeps why; blanks say nothing."""
    for reason in ("", "   ", "x" * 1001):
        result = CliRunner().invoke(cli, ["abandon", "1", "--reason", reason])
        assert (result.exit_code, "--reason" in result.stderr) == (EXIT_USAGE, True), reason


def said_next() -> tuple[int, str]:
    """The exit code of `tally status` and the next step that it names."""
    result = CliRunner().invoke(cli, ["status"])
    return result.exit_code, result.stderr.splitlines()[-1]


def test_the_next_step_follows_the_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was started and not stopped has crashed: starting it again would hide why."""
    home = tmp_path / ".tally"
    home.mkdir()
    monkeypatch.setenv("TALLY_CONFIG", str(app(tmp_path).config_path))
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
