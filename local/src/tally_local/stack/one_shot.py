"""Running a program to its end."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tally.errors import StackError

TAIL_LINES = 15


def run(
    argv: Sequence[str],
    *,
    what: str,
    next_step: str,
    timeout_s: float,
    cwd: Path | None = None,
    script: str = "",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run ``argv`` to its end, with ``script`` as its input; return what it printed.

    Args:
        argv: Program and arguments.
        what: What has failed if it fails: the start of the error's sentence.
        next_step: The error's next step.
        timeout_s: How long it may take.
        cwd: Its working directory; this process's by default.
        script: Its standard input.
        environment: Variables that are added to this process's environment.

    Raises:
        StackError: It cannot be started, fails or takes too long; the last lines are in the
            message.
    """
    try:
        return subprocess.run(
            argv,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            input=script,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=timeout_s,
        ).stdout
    except subprocess.CalledProcessError as error:
        tail = "\n".join(error.stdout.splitlines()[-TAIL_LINES:])
        why = f"{argv[0]} ended with {error.returncode}:\n{tail}"
    except OSError as error:
        why = str(error)
    except subprocess.TimeoutExpired:
        why = f"{argv[0]} took longer than {timeout_s:.0f} s"
    raise StackError(f"{what}: {why}", next_step=next_step)
