"""The configuration and the pipeline of a command, and its confirmation."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tally.cli.app import App
from tally.cli.tree import cli
from tally.errors import EXIT_USAGE, UnknownPipelineError, UsageError

ONE = '[pipelines.first]\ntopics = ["a"]\n'
TWO = ONE + '[pipelines.second]\ntopics = ["b"]\n'


def app(folder: Path, text: str) -> App:
    """An app over a configuration of the test's own."""
    path = folder / "tally.toml"
    path.write_text(text, encoding="utf-8")
    return App(config=path)


def test_the_only_pipeline_need_not_be_named(tmp_path: Path) -> None:
    """With one pipeline configured, that one is meant."""
    assert app(tmp_path, ONE).pipeline(None) == "first"


def test_one_of_several_pipelines_must_be_named(tmp_path: Path) -> None:
    """Nothing is guessed; the error lists the names."""
    with pytest.raises(UsageError, match="first, second"):
        app(tmp_path, TWO).pipeline(None)
    assert app(tmp_path, TWO).pipeline("second") == "second"


def test_a_pipeline_that_is_not_configured_is_refused(tmp_path: Path) -> None:
    """A typing error in the name is found before anything is done."""
    with pytest.raises(UnknownPipelineError, match="third"):
        app(tmp_path, ONE).pipeline("third")


def test_the_option_wins_over_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--config, then TALLY_CONFIG, then ./tally.toml."""
    monkeypatch.setenv("TALLY_CONFIG", str(tmp_path / "variable.toml"))
    assert App(config=tmp_path / "option.toml").config_path == tmp_path / "option.toml"
    assert App().config_path == tmp_path / "variable.toml"
    monkeypatch.delenv("TALLY_CONFIG")
    monkeypatch.chdir(tmp_path)
    assert App().config_path == tmp_path / "tally.toml"


def test_without_a_terminal_nothing_is_decided_unless_said_beforehand(tmp_path: Path) -> None:
    """A script that forgot --yes fails instead of hanging or deciding."""
    with pytest.raises(UsageError, match="no terminal"):
        app(tmp_path, ONE).confirm("Really?", yes=False)
    app(tmp_path, ONE).confirm("Really?", yes=True)


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_on_a_terminal_only_a_yes_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, agreed: bool
) -> None:
    """Anything but yes cancels."""
    asked = app(tmp_path, ONE)

    @click.command()
    def ask() -> None:
        # The stream is click's own, which is no terminal and cannot be told to be one.
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        asked.confirm("Really?", yes=False)

    result = CliRunner().invoke(ask, input=answer)
    assert result.exit_code == (0 if agreed else 1)
    assert result.stdout == ""


def test_a_configuration_error_ends_with_2_through_the_whole_program(tmp_path: Path) -> None:
    """The root command turns errors into exit codes when it runs as the program does."""
    result = CliRunner().invoke(cli, ["--config", str(tmp_path / "none.toml"), "status", "--json"])
    assert result.exit_code == EXIT_USAGE
    assert '"code": "config-invalid"' in result.stdout
    assert "config-invalid: there is no configuration file" in result.stderr


@pytest.mark.parametrize("reason", ["", "   ", "x" * 1001])
def test_a_decision_needs_a_reason_that_fits(reason: str) -> None:
    """The ledger keeps why; blanks say nothing."""
    result = CliRunner().invoke(cli, ["abandon", "1", "--reason", reason])
    assert result.exit_code == EXIT_USAGE
    assert "--reason" in result.stderr
