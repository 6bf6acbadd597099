"""The driver: a process of its own that counts batches, started and ended alike for both engines.

With spark-submit it is the shell script, the JVM and the job's Python; with Spark Connect the job's
Python alone. Its secrets are in a file that only its owner can read, whose path it is given.
"""

import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import tomli_w
from airflow.sdk.exceptions import AirflowException
from pydantic import BaseModel, SecretStr

from tally.airflow.connections import submit_hook
from tally.config.names import PREFIX
from tally.config.settings import OF_DRIVERS, SECTIONS, Settings
from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.errors import SparkConnectionError
from tally.leftovers import is_private, new_file
from tally.spark.java import JAVA_OPTIONS, is_noise, with_logging

log = logging.getLogger(__name__)

# At its own level, INFO, Spark writes some thousand lines a minute to the task's log;
# ``spark.log.level`` in tally.toml brings them back.
LOG_LEVEL: Final = "WARN"

# Airflow kills a task's process five seconds after it has asked it to end.
GRACE_S: Final = 3.0
"""Seconds that a driver has from SIGTERM to SIGKILL."""

_KILLED: Final = "asked to end before the driver started"
_LINES_KEPT: Final = 100

# The secrets file has what a driver needs of them. Variables of the worker would override it in the
# driver, although the connections override them here.
_CARRIED: Final = tuple(f"{PREFIX}{section.upper()}__" for section in SECTIONS)
# The driver does not need Airflow's own configuration and connections.
_WITHHELD: Final = ("AIRFLOW__", "_AIRFLOW_", "AIRFLOW_CONN_", "AIRFLOW_VAR_")

# Spark configuration that must not show on a command line; the driver reads it from its file.
_SENSITIVE: Final = re.compile(r"secret|password|token|credential|access\.?key", re.IGNORECASE)

# How the job prints an error of Tally's: the code in brackets, the sentence.
_TALLY_ERROR: Final = re.compile(r"^\[[a-z-]+\] ")


class Driver:
    """A driver in a process group of its own, so that all its processes can be ended.

    Killing spark-submit alone leaves the Python driver running for a while.

    Attributes:
        grace_s: Seconds that it has to end by itself when it is ended.
        killed: Whether it was asked to end.
    """

    def __init__(self) -> None:
        self.grace_s = GRACE_S
        self.killed = False
        self._process: subprocess.Popen[str] | None = None
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process: with spark-submit, in client mode, the job's own."""
        return None if self._process is None else self._process.returncode

    @property
    def error_line(self) -> str:
        """The job's own error among the last lines it printed, or else the last line."""
        lines = list(self._lines)
        ours = [line for line in lines if _TALLY_ERROR.match(line)]
        return (ours or lines or ["it printed nothing"])[-1]

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run the driver to its end; what it prints goes to the task's log.

        Args:
            command: The program and its arguments.
            environment: The whole environment of the driver.

        Raises:
            SparkConnectionError: There is no such program.
            AirflowException: It ended with an exit code other than 0, or it was killed.
        """
        if self.killed:
            raise AirflowException(_KILLED)
        if shutil.which(command[0], path=environment.get("PATH")) is None:
            raise SparkConnectionError(
                f"{command[0]} is not on the worker's PATH",
                next_step="install the extra kafka-tally[spark] where Airflow runs its tasks",
            )
        with subprocess.Popen(
            command,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as self._process:
            try:
                self._follow(self._process)
            except BaseException:  # Airflow's task timeout is no AirflowException
                self.kill()
                raise
        if self.exit_code:
            raise AirflowException(
                f"the driver ended with exit code {self.exit_code}: {self.error_line}"
            )

    def _follow(self, process: subprocess.Popen[str]) -> None:
        if self.killed:  # before the process was known
            _end_group(process.pid, self.grace_s)
        for line in process.stdout or ():
            if not is_noise(line.encode()):
                self._lines.append(line.rstrip())
                log.info("%s", line.rstrip())

    def kill(self) -> None:
        """End all processes of the driver; one that starts at this moment is ended too."""
        self.killed = True
        if self._process is not None and self._process.returncode is None:
            _end_group(self._process.pid, self.grace_s)


def _end_group(leader: int, grace_s: float) -> None:
    """End all processes of a group: SIGTERM, then SIGKILL."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(leader, kind)
        deadline = time.monotonic() + grace_s
        while _is_alive(leader) and time.monotonic() < deadline:
            time.sleep(0.05)


def _is_alive(group: int) -> bool:
    for process in psutil.process_iter(["status"]):
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                return True
    return False


# --- what it is started with


def submit_command(
    application: str, arguments: Sequence[str], *, name: str, conf: Mapping[str, str]
) -> list[str]:
    """The spark-submit that runs the job on the master of Airflow's connection, in client mode."""
    hook = submit_hook(name=name, conf=dict(conf), application_args=list(arguments))
    # The hook's public `submit` starts the process itself, and kills only the one that it started.
    return list(hook._build_spark_submit_command(application))  # noqa: SLF001


def submit_conf(options: Mapping[str, str], jvm_flags: str) -> dict[str, str]:
    """The part of the session's configuration that spark-submit needs for the JVM that it starts.

    Args:
        options: The session's configuration; its ``spark.driver.extraJavaOptions`` replaces the
            flags.
        jvm_flags: Flags of the driver's JVM; may be empty.
    """
    defaults = {
        "spark.pyspark.python": sys.executable,
        "spark.log.level": LOG_LEVEL,
        JAVA_OPTIONS: jvm_flags,
    }
    shown = {k: v for k, v in options.items() if not _SENSITIVE.search(k)}
    return with_logging(defaults | shown)


def driver_environment(config: Path, secrets: Path) -> dict[str, str]:
    """The environment of the driver: this task's, with the paths of configuration and secrets."""
    dropped = (*_CARRIED, *_WITHHELD)
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith(dropped)}
    # Airflow may run outside an activated environment: the spark-submit of this Python is on the
    # path too, as the last one.
    programs = os.pathsep.join(
        [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    )
    return {
        **kept,
        **_own_spark_home(programs),
        "PATH": programs,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        CONFIG_VARIABLE: str(config),
        SECRETS_VARIABLE: str(secrets),
    }


def _own_spark_home(path: str) -> dict[str, str]:
    """``SPARK_HOME``, when spark-submit is the one of this Python.

    Otherwise its shell script looks for Spark, and fails if Python's path contains a space.
    """
    submit = shutil.which("spark-submit", path=path) or ""
    pyspark = importlib.util.find_spec("pyspark")
    is_ours = Path(submit).parent == Path(sys.executable).parent
    if "SPARK_HOME" in os.environ or not is_ours or pyspark is None or pyspark.origin is None:
        return {}
    return {"SPARK_HOME": str(Path(pyspark.origin).parent)}


@contextmanager
def secrets_file(settings: Settings) -> Iterator[Path]:
    """A file with the settings of the servers, secrets included, for ``TALLY_SECRETS_FILE``.

    Mode 0600; deleted at the end of the block. After a SIGKILL the next call deletes it.

    Raises:
        ConfigError: The folder for it is another user's, or others may read it.
        UnwritableError: The folder is full, or cannot be written.
    """
    descriptor, path = new_file("secrets", ".toml", _session_folder())
    try:
        with os.fdopen(descriptor, "wb") as stream:
            sections = {key: getattr(settings, key) for key in OF_DRIVERS}
            plain = {key: _plain(of) for key, of in sections.items() if of is not None}
            tomli_w.dump(plain, stream)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _session_folder() -> Path | None:
    """``$XDG_RUNTIME_DIR``; None where it is not set or not this user's."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_absolute() and is_private(Path(given)):
        return Path(given)
    return None


def _plain(section: BaseModel) -> dict[str, Any]:
    """The section's values with the secrets in the clear; TOML has no null, so None is left out."""
    secrets = {k: v.get_secret_value() for k, v in section if isinstance(v, SecretStr)}
    return section.model_dump(mode="json", exclude_none=True) | secrets
