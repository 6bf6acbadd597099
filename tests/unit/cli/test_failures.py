"""How a command ends: exit codes, and what stdout and stderr carry then."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.unit.sources import ERRORS

from tally import errors
from tally.cli import cli, failures
from tally.cli.failures import (
    EXIT_CANCELLED,
    EXIT_PIPE_CLOSED,
    EXIT_TERMINATED,
    TerminatedError,
    guarded,
)
from tally.cli.output import Output
from tally.errors import EXIT_BUG, EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, UnwritableError

Captured = pytest.CaptureFixture[str]


def raising(error: BaseException) -> Callable[[], None]:

    def work() -> None:
        raise error

    return work


def test_each_way_to_end_has_its_exit_code() -> None:
    """Which class has which code is compared with the drawing of the errors."""
    for error, code in (
        (errors.ConfigError("it went wrong"), 2),
        (errors.ReadError("it went wrong"), 3),
        (errors.OutcomeUnknownError("it went wrong"), 3),
        (errors.BlockedError("it went wrong"), 4),
        (errors.FencedError("it went wrong"), 5),
    ):
        assert guarded(raising(error), Output()) == code
    assert guarded(lambda: None, Output()) == EXIT_OK
    assert guarded(lambda: EXIT_FINDINGS, Output()) == EXIT_FINDINGS
    for cancelled in (KeyboardInterrupt(), click.Abort()):
        assert guarded(raising(cancelled), Output()) == EXIT_CANCELLED


def test_the_documented_exit_codes_are_the_ones_in_use() -> None:
    """The table in the module, which the reference repeats, lists every code and no other."""
    table = inspect.getdoc(failures) or ""
    documented = {int(code) for code in re.findall(r"^(\d+) ", table, re.MULTILINE)}
    classes = {error.exit_code for error in ERRORS}
    own = {EXIT_OK, EXIT_FINDINGS, EXIT_BUG, EXIT_CANCELLED, EXIT_PIPE_CLOSED, EXIT_TERMINATED}
    assert documented == classes | own


def test_an_error_is_told_on_stderr_and_with_json_as_one_document_too(capsys: Captured) -> None:
    """With its code, and the next step on a line of its own; a result stays the only document."""
    guarded(raising(errors.FencedError("another attempt", next_step="tally show 4")), Output())
    assert capsys.readouterr() == ("", "fenced: another attempt\nnext: tally show 4\n")
    error = errors.SchemaError("no tables", next_step="tally migrate")
    guarded(raising(error), Output(as_json=True))
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == {
        "code": "schema-not-migrated",
        "exit_code": 4,
        "what": "no tables",
        "next_step": "tally migrate",
    }
    assert "no tables" in err
    output = Output(as_json=True)

    def work() -> None:
        output.document({"batch": None})
        raise errors.BlockedError("alog/1 is blocked")

    assert guarded(work, output) == 4
    assert json.loads(capsys.readouterr().out) == {"batch": None}


@pytest.mark.parametrize(
    ("module", "ends"), [("no_such_package.part", 4), ("tally.no_such_part", 70)]
)
def test_a_dependency_that_is_not_installed_is_no_bug(
    capsys: Captured, module: str, ends: int
) -> None:
    """As after a git pull that needs another package; a module of Tally's own is one.

    Whose import it was is shown, as a package may also lack what it imports itself.
    """
    assert guarded(lambda: import_module(module), Output()) == ends
    said = capsys.readouterr().err
    assert ("needs the package no_such_package" in said) == (ends == 4)
    assert ("next: make setup" in said) == (ends == 4)
    assert "Traceback" in said


def test_bugs_signals_and_wrong_options_have_codes_of_their_own(capsys: Captured) -> None:
    """A bug shows its traceback, SIGTERM is told from Ctrl-C, and a wrong option says so."""
    assert guarded(raising(ZeroDivisionError("oops")), Output()) == EXIT_BUG
    err = capsys.readouterr().err
    for text in ("Traceback", "ZeroDivisionError: oops", "bug in Tally"):
        assert text in err
    assert guarded(raising(TerminatedError()), Output()) == EXIT_TERMINATED
    assert capsys.readouterr().err == "terminated\n"
    assert guarded(raising(click.UsageError("no such option")), Output()) == EXIT_USAGE
    assert "no such option" in capsys.readouterr().err


def test_with_json_a_wrong_command_line_is_one_document_too() -> None:
    """Whatever is wrong with it, and wherever --json stands."""
    for words, answer, next_step in (
        (["status", "--json", "--wdie"], "No such option '--wdie'", "tally status --help"),
        (["show", "--json"], "Missing argument 'BATCH'", "tally show --help"),
        (["stauts", "--json"], "did you mean status?", "tally --help"),
        (["--json", "status"], "No such option '--json'", "tally --help"),
    ):
        result = CliRunner().invoke(cli, words, prog_name="tally")
        assert result.exit_code == EXIT_USAGE
        error = json.loads(result.stdout)["error"]
        assert answer in error.pop("what")
        assert error == {"code": "usage", "exit_code": EXIT_USAGE, "next_step": next_step}


def ended(script: str, *arguments: str, stdout: Any) -> tuple[int, bytes]:
    """The exit code of a program, and what it has written to stderr."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)
    return done.returncode, done.stderr


TALLY = "from tally.cli import main; main()"
MANY_LINES = (
    "import sys\n"
    "from tally.cli.failures import guarded\n"
    "from tally.cli.output import Output\n"
    "out = Output()\n"
    "sys.exit(guarded(lambda: [out.line('x' * 1000) for _ in range(1000)] and 0, out))\n"
)


def test_a_reader_that_goes_away_is_no_bug() -> None:
    """`tally batches | head` ends quietly with 141, whether click or a command writes."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:  # noqa: PTH123
        assert ended(MANY_LINES, stdout=closed) == (EXIT_PIPE_CLOSED, b"")
        assert ended(TALLY, "--help", stdout=closed) == (EXIT_PIPE_CLOSED, b"")


def test_an_output_that_is_full_is_no_bug() -> None:
    """`tally counts > file` on a full disk says so."""
    with Path("/dev/full").open("wb") as full:
        code, told = ended(TALLY, "--help", stdout=full)
    assert b"unwritable: the command's output cannot be written: No space" in told
    assert code == UnwritableError.exit_code
