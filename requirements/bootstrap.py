"""Set up the checkout: a virtual environment in ``.tally/venv``, then jars and servers.

Only the standard library is there when this runs. Every package is pinned and hashed; what is
built from source is built with the pinned tools. A set-up that was interrupted goes on where it
stopped; one that is complete is recognised by a stamp and costs nothing.

Run from the checkout: ``python3 requirements/bootstrap.py``.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OLDEST_PYTHON = (3, 11)
PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / ".tally"
VENV = FOLDER / "venv"
STAMP = FOLDER / "setup.stamp"
TICK_S = 5
"""Seconds between two signs of life on a terminal."""
# Whatever changes the result of a set-up is part of its stamp.
INPUTS = (
    "requirements/bootstrap.py",
    "requirements/bootstrap.txt",
    "requirements/locked.txt",
    "pyproject.toml",
    "local/pyproject.toml",
    "local/src/tally_local/stack/ivy.xml",
    "src/tally/spark/connector/jars.sha256",
    "local/src/tally_local/stack/jars.sha256",
)
# uv knows the same things by other names than pip.
UV_NAMES = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_CERT": "SSL_CERT_FILE",
}


def main() -> int:
    """Set up what is not set up yet; return the exit code."""
    if sys.version_info < OLDEST_PYTHON:
        return _fail(
            f"Tally needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}",
            "name another one: make PYTHON=python3.12 …",
        )
    if _is_complete():
        return 0
    FOLDER.mkdir(exist_ok=True)
    try:
        with _lock():
            if not _is_complete():
                _set_up()
    except subprocess.CalledProcessError as error:
        return _fail(f"{_program(error.cmd)} failed, its last words are above", "run it again")
    except KeyboardInterrupt:
        return _fail("interrupted", "run it again, it goes on from here", code=130)
    return 0


def _is_complete() -> bool:
    return STAMP.is_file() and STAMP.read_text() == _digest() and (VENV / "bin/tally").exists()


def _digest() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in INPUTS:
        digest.update((PROJECT / name).read_bytes())
    return digest.hexdigest()


def _set_up() -> None:
    _check_java()
    started = time.monotonic()
    python = str(VENV / "bin/python")
    if not _venv_is_usable():
        _say("virtual environment in .tally/venv")
        shutil.rmtree(VENV, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(VENV)])
    _say("uv and build tools from PyPI (30 MB)")
    _run(
        [
            *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--require-hashes", "--requirement", "requirements/bootstrap.txt"),
        ]
    )
    _say("Python packages from PyPI: Spark, Airflow and the rest (about 900 MB the first time)")
    uv = [str(VENV / "bin/uv"), "pip"]
    # Its list of 180 packages would push everything else off the screen.
    _run(
        [
            *(*uv, "sync", "--quiet", "--python", python, "--require-hashes"),
            *("--no-build-isolation", "--only-binary", ":all:"),
            *("--no-binary", "pyspark", "--no-binary", "pyspark-client"),
            "requirements/locked.txt",
        ]
    )
    _say("tally and its local stack, editable")
    _run(
        [
            *(*uv, "install", "--quiet", "--python", python, "--no-deps", "--no-build-isolation"),
            *("--editable", ".", "--editable", "./local"),
        ]
    )
    _say("jars, servers and the archive of Spark's classes")
    _run([python, "-m", "tally_local.stack", "install", "--project", str(PROJECT)])
    STAMP.write_text(_digest())
    _say(f"done in {time.monotonic() - started:.0f} s")


def _check_java() -> None:
    """Before a gigabyte is downloaded in vain."""
    sys.path.insert(0, str(PROJECT / "src"))
    from tally.errors import StackError  # noqa: PLC0415 - needs the path above
    from tally.spark.java import java  # noqa: PLC0415

    try:
        java()
    except StackError as error:
        sys.exit(_fail(error.what, error.next_step))


def _venv_is_usable() -> bool:
    """Whether the environment works and is this Python's."""
    python = VENV / "bin/python"
    if not python.exists():
        return False
    question = "import pip, sys; print(sys.version)"
    answer = subprocess.run(
        [str(python), "-c", question], capture_output=True, text=True, check=False
    )
    return answer.returncode == 0 and answer.stdout.strip() == sys.version


def _run(argv: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    for theirs, uvs in UV_NAMES.items():
        if theirs in environment:
            environment.setdefault(uvs, environment[theirs])
    started = time.monotonic()
    with subprocess.Popen(argv, cwd=PROJECT, env=environment) as process:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(TICK_S)
            if process.returncode is None and sys.stderr.isatty():
                _say(f"{time.monotonic() - started:.0f} s", end="\r")
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)


def _program(argv: list[str]) -> str:
    return " ".join([Path(argv[0]).name, *argv[1:4]])


@contextmanager
def _lock() -> Iterator[None]:
    with (FOLDER / "setup.lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another set-up of this checkout is running: waiting for it")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _say(message: str, end: str = "\n") -> None:
    sys.stderr.write(f"set-up: {message}{end}")
    sys.stderr.flush()


def _fail(what: str, next_step: str, *, code: int = 1) -> int:
    sys.stderr.write(f"set-up: {what}\nNext: {next_step}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
