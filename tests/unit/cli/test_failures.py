"""How a command ends: exit codes, and what stdout and stderr carry then."""

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tally import errors
from tally.cli import cli, failures
from tally.cli.failures import EXIT_CANCELLED, EXIT_PIPE_CLOSED, EXIT_TERMINATED, guarded
from tally.cli.stopping import TerminatedError
from tally.cli.ui.output import Output
from tally.errors import EXIT_BUG, EXIT_FINDINGS, EXIT_OK, EXIT_USAGE, TallyError, UnwritableError

# Written out here and not taken from the classes: other programs rely on these numbers.
EXIT_CODES = {
    "UsageError": 2,
    "ConfigError": 2,
    "UnknownPipelineError": 2,
    "UnknownBatchError": 2,
    "RetryableError": 3,
    "KafkaUnavailableError": 3,
    "MySQLUnavailableError": 3,
    "TransactionRetryError": 3,
    "OutcomeUnknownError": 3,
    "ReadError": 3,
    "RecordTimestampError": 4,
    "OperatorError": 4,
    "AccessDeniedError": 4,
    "SchemaError": 4,
    "BlockedError": 4,
    "MissingTopicError": 4,
    "DataLossError": 4,
    "MalformedFloodError": 4,
    "UnwritableError": 4,
    "FencedError": 5,
}


def raising(error: BaseException) -> Callable[[], None]:
    """A command that ends with an error."""

    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(("name", "code"), EXIT_CODES.items())
def test_each_class_of_error_has_its_exit_code(name: str, code: int) -> None:
    """The exit codes that are promised are those that a command ends with."""
    error: type[TallyError] = getattr(errors, name)
    assert guarded(raising(error("it went wrong")), Output()) == code


def test_a_command_that_returns_ends_with_0_and_one_that_exits_with_its_code() -> None:
    """Without an error the command decides."""
    assert guarded(lambda: None, Output()) == EXIT_OK
    assert guarded(lambda: EXIT_FINDINGS, Output()) == EXIT_FINDINGS


def test_an_error_is_on_stderr_with_its_code_and_the_next_step_on_a_line_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An operator sees what happened and what to type next; stdout stays empty."""
    guarded(raising(errors.FencedError("another attempt", next_step="tally show 4")), Output())
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "fenced: another attempt\nnext: tally show 4\n"


def test_with_json_stdout_carries_the_error_as_one_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A program reads stdout alone and finds the error there."""
    error = errors.SchemaError("no tables", next_step="tally migrate")
    guarded(raising(error), Output(as_json=True))
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": {
            "code": "schema-not-migrated",
            "exit_code": 4,
            "what": "no tables",
            "next_step": "tally migrate",
        }
    }
    assert "no tables" in err


def test_a_result_that_was_written_stays_the_only_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A plan with blocked partitions is a result and an error; stdout still is one document."""
    output = Output(as_json=True)

    def work() -> None:
        output.document({"batch": None})
        raise errors.BlockedError("alog/1 is blocked")

    assert guarded(work, output) == 4
    assert json.loads(capsys.readouterr().out) == {"batch": None}


def test_a_bug_ends_with_70_and_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected exception never gets the exit code of one of Tally's errors."""
    assert guarded(raising(ZeroDivisionError("oops")), Output()) == EXIT_BUG
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "ZeroDivisionError: oops" in err
    assert "bug in Tally" in err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_ctrl_c_and_no_end_with_130(error: BaseException) -> None:
    """Both differ from success and from every error."""
    assert guarded(raising(error), Output()) == EXIT_CANCELLED


def test_sigterm_ends_with_143(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where click has made Ctrl-C of it."""
    assert guarded(raising(TerminatedError()), Output()) == EXIT_TERMINATED
    aborted = click.Abort()
    aborted.__cause__ = TerminatedError()
    assert guarded(raising(aborted), Output()) == EXIT_TERMINATED
    assert capsys.readouterr().err == "terminated\nterminated\n"


def test_clicks_own_errors_end_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option is a wrong request."""
    assert guarded(raising(click.UsageError("no such option")), Output()) == EXIT_USAGE
    assert "no such option" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer", "next_step"),
    [
        (["status", "--json", "--wdie"], "No such option '--wdie'", "tally status --help"),
        (["show", "--json"], "Missing argument 'BATCH'", "tally show --help"),
        (["stauts", "--json"], "did you mean status?", "tally --help"),
    ],
)
def test_with_json_a_wrong_command_line_is_one_document_too(
    words: list[str], answer: str, next_step: str
) -> None:
    """Whatever is wrong with it, and wherever --json stands."""
    result = CliRunner().invoke(cli, words, prog_name="tally")
    assert result.exit_code == EXIT_USAGE
    error = json.loads(result.stdout)["error"]
    assert answer in error.pop("what")
    assert error == {"code": "usage", "exit_code": EXIT_USAGE, "next_step": next_step}


def test_a_reader_that_goes_away_is_no_bug() -> None:
    """`tally batches | head` ends quietly."""
    script = (
        "import os, sys\n"
        "from tally.cli.failures import guarded\n"
        "from tally.cli.ui.output import Output\n"
        "out = Output()\n"
        "sys.exit(guarded(lambda: [out.line('x' * 1000) for _ in range(1000)] and 0, out))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(30) == EXIT_PIPE_CLOSED
    assert process.stderr.read() == b""
    process.stderr.close()


def tally(*arguments: str, stdout: Any) -> subprocess.Popen[bytes]:
    """The real program."""
    program = "from tally.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=stdout, stderr=subprocess.PIPE
    )


def test_a_command_whose_reader_has_gone_ends_with_141() -> None:
    """Whether click or a command writes."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed, tally("--help", stdout=closed) as process:  # noqa: PTH123
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == EXIT_PIPE_CLOSED


def test_an_output_that_is_full_is_no_bug() -> None:
    """`tally counts > file` on a full disk says so."""
    with Path("/dev/full").open("wb") as full, tally("--help", stdout=full) as process:
        assert process.stderr is not None
        assert b"unwritable: the command's output cannot be written: No space" in (
            process.stderr.read()
        )
    assert process.returncode == UnwritableError.exit_code


def test_the_documented_exit_codes_are_the_ones_in_use() -> None:
    """The table in the module, which the reference repeats, lists every code and no other."""
    table = inspect.getdoc(failures) or ""
    documented = {int(code) for code in re.findall(r"^(\d+) ", table, re.MULTILINE)}
    classes = {error.exit_code for error in subclasses(TallyError)}
    own = {EXIT_OK, EXIT_FINDINGS, EXIT_BUG, EXIT_CANCELLED, EXIT_PIPE_CLOSED, EXIT_TERMINATED}
    assert documented == classes | own


def subclasses(error: type[TallyError]) -> list[type[TallyError]]:
    """All errors below one."""
    return [c for child in error.__subclasses__() for c in [child, *subclasses(child)]]
