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

Captured = pytest.CaptureFixture[str]

# Written out here and not taken from the classes: other programs rely on these numbers.
EXIT_CODES = {
    2: ("UsageError", "ConfigError", "UnknownPipelineError", "UnknownBatchError"),
    3: (
        *("RetryableError", "KafkaUnavailableError", "MySQLUnavailableError", "ReadError"),
        *("TransactionRetryError", "OutcomeUnknownError"),
    ),
    4: (
        *("RecordTimestampError", "OperatorError", "AccessDeniedError", "SchemaError"),
        *("BlockedError", "MissingTopicError", "DataLossError", "MalformedFloodError"),
        "UnwritableError",
    ),
    5: ("FencedError",),
}


def raising(error: BaseException) -> Callable[[], None]:
    """A command that ends with an error."""

    def work() -> None:
        raise error

    return work


def test_each_way_to_end_has_its_exit_code() -> None:
    """The codes that are promised are those that a command ends with."""
    for code, names in EXIT_CODES.items():
        classes: list[type[TallyError]] = [getattr(errors, name) for name in names]
        ends = [guarded(raising(error("it went wrong")), Output()) for error in classes]
        assert dict(zip(names, ends, strict=True)) == dict.fromkeys(names, code)
    assert guarded(lambda: None, Output()) == EXIT_OK
    assert guarded(lambda: EXIT_FINDINGS, Output()) == EXIT_FINDINGS
    for cancelled in (KeyboardInterrupt(), click.Abort()):
        assert guarded(raising(cancelled), Output()) == EXIT_CANCELLED


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


def test_an_error_is_on_stderr_with_its_code_and_the_next_step_on_a_line_of_its_own(
    capsys: Captured,
) -> None:
    """An operator sees what happened and what to type next; stdout stays empty."""
    guarded(raising(errors.FencedError("another attempt", next_step="tally show 4")), Output())
    assert capsys.readouterr() == ("", "fenced: another attempt\nnext: tally show 4\n")


def test_with_json_stdout_carries_the_error_as_one_document(capsys: Captured) -> None:
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


def test_a_result_that_was_written_stays_the_only_document(capsys: Captured) -> None:
    """A plan with blocked partitions is a result and an error; stdout still is one document."""
    output = Output(as_json=True)

    def work() -> None:
        output.document({"batch": None})
        raise errors.BlockedError("alog/1 is blocked")

    assert guarded(work, output) == 4
    assert json.loads(capsys.readouterr().out) == {"batch": None}


def test_a_bug_ends_with_70_and_its_traceback(capsys: Captured) -> None:
    """An unexpected exception never gets the exit code of one of Tally's errors."""
    assert guarded(raising(ZeroDivisionError("oops")), Output()) == EXIT_BUG
    err = capsys.readouterr().err
    for text in ("Traceback", "ZeroDivisionError: oops", "bug in Tally"):
        assert text in err


def test_sigterm_ends_with_143(capsys: Captured) -> None:
    """Also where click has made Ctrl-C of it."""
    assert guarded(raising(TerminatedError()), Output()) == EXIT_TERMINATED
    aborted = click.Abort()
    aborted.__cause__ = TerminatedError()
    assert guarded(raising(aborted), Output()) == EXIT_TERMINATED
    assert capsys.readouterr().err == "terminated\nterminated\n"


def test_clicks_own_errors_end_with_2(capsys: Captured) -> None:
    """A wrong option is a wrong request."""
    assert guarded(raising(click.UsageError("no such option")), Output()) == EXIT_USAGE
    assert "no such option" in capsys.readouterr().err


def test_with_json_a_wrong_command_line_is_one_document_too() -> None:
    """Whatever is wrong with it, and wherever --json stands."""
    for words, answer, next_step in (
        (["status", "--json", "--wdie"], "No such option '--wdie'", "tally status --help"),
        (["show", "--json"], "Missing argument 'BATCH'", "tally show --help"),
        (["stauts", "--json"], "did you mean status?", "tally --help"),
    ):
        result = CliRunner().invoke(cli, words, prog_name="tally")
        assert result.exit_code == EXIT_USAGE
        error = json.loads(result.stdout)["error"]
        assert answer in error.pop("what")
        assert error == {"code": "usage", "exit_code": EXIT_USAGE, "next_step": next_step}


def started(script: str, *arguments: str, stdout: Any) -> subprocess.Popen[bytes]:
    """A program of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments], stdout=stdout, stderr=subprocess.PIPE
    )


TALLY = "from tally.cli import main; main()"
MANY_LINES = (
    "import sys\n"
    "from tally.cli.failures import guarded\n"
    "from tally.cli.ui.output import Output\n"
    "out = Output()\n"
    "sys.exit(guarded(lambda: [out.line('x' * 1000) for _ in range(1000)] and 0, out))\n"
)


def test_a_reader_that_goes_away_is_no_bug() -> None:
    """`tally batches | head` ends quietly with 141, whether click or a command writes."""
    process = started(MANY_LINES, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    with process:
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == EXIT_PIPE_CLOSED
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed, started(TALLY, "--help", stdout=closed) as process:  # noqa: PTH123
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == EXIT_PIPE_CLOSED


def test_an_output_that_is_full_is_no_bug() -> None:
    """`tally counts > file` on a full disk says so."""
    with (
        Path("/dev/full").open("wb") as full,
        started(TALLY, "--help", stdout=full) as process,
    ):
        assert process.stderr is not None
        told = process.stderr.read()
    assert b"unwritable: the command's output cannot be written: No space" in told
    assert process.returncode == UnwritableError.exit_code
