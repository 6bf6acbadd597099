"""What a command ends with: its exit code, and what stderr says about it.

====  =============================================================================
code  meaning
====  =============================================================================
0     done
1     a check found something (audit, doctor)
2     the request or the configuration is wrong; nothing was changed
3     something did not answer in time; the same call may succeed
4     an operator must decide or repair something
5     another attempt was first: it owns the batch, or the batch has ended; nothing was changed
70    a bug in Tally; the traceback is on stderr
130   Ctrl-C, or a question was answered with no
141   the reader of stdout has closed it, as head does
====  =============================================================================
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

import click

from tally.app.views import ErrorView, document
from tally.cli.ui.output import Output
from tally.errors import EXIT_BUG, EXIT_OK, TallyError

EXIT_CANCELLED: Final = 130
EXIT_PIPE_CLOSED: Final = 141

BUG_ADVICE: Final = "this is a bug in Tally; please report it with the lines above"


def guarded(work: Callable[[], Any], output: Output) -> int:
    """Run a command and return the exit code for the way in which it ended.

    With ``--json`` stdout carries exactly one document, ``{"error": …}`` if the command had no
    result before it failed.
    """
    try:
        code = work()
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.note("cancelled")
        return EXIT_CANCELLED
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_PIPE_CLOSED
    except TallyError as error:
        return _failed(error, output)
    except Exception:  # noqa: BLE001 - the last place that can turn a bug into an exit code
        traceback.print_exc()
        output.note(BUG_ADVICE)
        return EXIT_BUG
    return code if isinstance(code, int) else EXIT_OK


def _failed(error: TallyError, output: Output) -> int:
    if output.as_json and not output.has_document:
        output.document({"error": document(ErrorView.of(error))})
    output.problem(error.code, error.what, error.next_step)
    return error.exit_code


def _forget_stdout() -> None:
    # Otherwise Python reports the closed pipe a second time, when it flushes stdout at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
