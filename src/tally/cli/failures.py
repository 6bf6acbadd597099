"""What a command ends with: its exit code, and what stderr says about it.

====  =============================================================================
code  meaning
====  =============================================================================
0     done
1     a check found something (audit, doctor, status --check, pipelines --check)
2     the request or the configuration is wrong; nothing was changed
3     something did not answer in time; the same call may succeed
4     an operator must decide or repair something
5     another attempt was first: it owns the batch, or the batch has ended; nothing was changed
70    a bug in Tally; the traceback is on stderr
130   Ctrl-C, or a question was answered with no
141   the reader of stdout has closed it, as head does
143   SIGTERM
====  =============================================================================
"""

import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import click

from tally import errors
from tally.cli.output import Output
from tally.errors import TallyError
from tally.views import ErrorView

EXIT_CANCELLED: Final = 130
EXIT_PIPE_CLOSED: Final = 141
EXIT_TERMINATED: Final = 143

BUG_ADVICE: Final = "this is a bug in Tally; please report it with the lines above"


class TerminatedError(KeyboardInterrupt):
    """The process got SIGTERM; everybody who cleans up after Ctrl-C does so after it, too."""


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into :class:`TerminatedError`; outside of the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminate(_: int, __: FrameType | None) -> None:
    raise TerminatedError


def guarded(work: Callable[[], Any], output: Output) -> int:
    """Run a command and return the exit code for the way in which it ended.

    With ``--json`` stdout carries exactly one document, ``{"error": …}`` if the command had no
    result before it failed.
    """
    try:
        code = work()
        sys.stdout.flush()
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = _misused(error, output)
    except (click.Abort, KeyboardInterrupt) as error:
        terminated = isinstance(error, TerminatedError)
        output.note("terminated" if terminated else "cancelled")
        code = EXIT_TERMINATED if terminated else EXIT_CANCELLED
    except OSError as error:
        code = _unwritten(error, output)
    except TallyError as error:
        code = _failed(error, output)
    except Exception as error:  # noqa: BLE001 - the last place that can turn a bug into an exit code
        code = _bug(error, output)
    return code if isinstance(code, int) else errors.EXIT_OK


def _misused(error: click.ClickException, output: Output) -> int:
    """A command line that cannot be understood; or one that shows the help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tally"
    wrong = errors.UsageError(error.format_message(), next_step=f"{path} --help")
    output.document({"error": ErrorView.of(wrong)})
    error.show()
    return error.exit_code


def _unwritten(error: OSError, output: Output) -> int:
    """An error of the operating system that no layer has translated."""
    if isinstance(error, BrokenPipeError):
        _forget_stdout()
        return EXIT_PIPE_CLOSED
    if error.errno in {errno.ENOSPC, errno.EDQUOT} and error.filename is None:
        _forget_stdout()
        full = errors.UnwritableError(
            f"the command's output cannot be written: {error.strerror}",
            next_step="free space where stdout is redirected to; what was committed stays",
        )
        return _failed(full, output)
    return _bug(error, output)


def _bug(error: Exception, output: Output) -> int:
    traceback.print_exception(error)
    if isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package not in {"", "tally", "tally_local"}:  # newer code than what was installed for it
            missing = errors.PackageMissingError(
                f"this version of Tally needs the package {package}, which is not installed, or "
                f"too old: {error}",
                next_step="make setup, in a checkout; else install again, with its extras: pip "
                "install --upgrade kafka-tally",
            )
            return _failed(missing, output)
    output.note(BUG_ADVICE)
    return errors.EXIT_BUG


def _failed(error: TallyError, output: Output) -> int:
    output.document({"error": ErrorView.of(error)})
    output.problem(error.code, error.what, error.next_step)
    return error.exit_code


def _forget_stdout() -> None:
    # Otherwise Python reports the closed pipe a second time, when it flushes stdout at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
