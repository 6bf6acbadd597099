"""Starting and ending the Spark driver: the provider's hook on a process group of its own."""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from tally.config.names import PREFIX
from tally.config.servers import SparkSettings
from tally.config.settings import SECTIONS
from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.errors import SparkConnectionError
from tally.spark.java import JAVA_OPTIONS, is_noise, with_logging

# At its own level, INFO, Spark writes some thousand lines a minute to the task's log;
# ``spark.log.level`` in tally.toml brings them back.
LOG_LEVEL: Final = "WARN"

# Airflow kills a task's process five seconds after it has asked it to end.
GRACE_S: Final = 3.0
"""Seconds that a driver has from SIGTERM to SIGKILL."""

KILLED: Final = "asked to end before the driver started"
"""Why a driver was not started."""

# The secrets file has what a driver needs of them. Variables of the worker would override it in the
# driver, although the connections override them here.
_CARRIED: Final = tuple(f"{PREFIX}{section.upper()}__" for section in SECTIONS)
# The driver does not need Airflow's own configuration and connections.
_WITHHELD: Final = ("AIRFLOW__", "_AIRFLOW_", "AIRFLOW_CONN_", "AIRFLOW_VAR_")

# Spark configuration that must not show on a command line; the driver reads it from its file.
_SENSITIVE: Final = re.compile(r"secret|password|token|credential|access\.?key", re.IGNORECASE)

# How the job prints an error of Tally's: the code in brackets, the sentence.
_TALLY_ERROR: Final = re.compile(r"^\[[a-z-]+\] ")


class DriverHook(SparkSubmitHook):
    """spark-submit in client mode, with an environment and a process group of its own.

    The group lets all of it be ended: killing spark-submit alone leaves the Python driver running
    for a while.

    Args:
        environment: The whole environment of the driver.
        options: As the provider's hook takes them.
    """

    def __init__(self, *, environment: Mapping[str, str], **options: Any) -> None:
        super().__init__(**options)
        self._environment = dict(environment)
        self._killed = False

    @property
    def exit_code(self) -> int | None:
        """The exit code of spark-submit: in client mode the job's own exit code."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    @property
    def error_line(self) -> str:
        """The job's own error, or the last line that spark-submit printed."""
        return error_line(self._last_submit_log_lines)

    def submit(self, application: str = "", **options: Any) -> str | None:
        """Run spark-submit to its end.

        Raises:
            SparkConnectionError: There is no spark-submit.
            AirflowException: It ended with an exit code other than 0, or it was killed.
        """
        if self._killed:
            raise AirflowException(KILLED)
        binary = str(self._connection["spark_binary"])
        if shutil.which(binary, path=self._environment.get("PATH")) is None:
            raise SparkConnectionError(
                f"{binary} is not on the worker's PATH",
                next_step="install the extra kafka-tally[spark] where Airflow runs its tasks",
            )
        try:
            return super().submit(
                application, env=self._environment, start_new_session=True, **options
            )
        finally:
            if self._submit_sp is not None and self._submit_sp.stdout is not None:
                self._submit_sp.stdout.close()  # the provider leaves it open

    def _process_spark_submit_log(self, itr: Iterable[str]) -> None:
        # on_kill came before the process was known
        if self._killed and self._submit_sp is not None:
            end_group(self._submit_sp.pid)
        super()._process_spark_submit_log(line for line in itr if not is_noise(line.encode()))

    def on_kill(self) -> None:
        """End spark-submit, the JVM and the Python driver; one that starts at this moment too."""
        self._killed = True
        if self._submit_sp is not None and self._submit_sp.returncode is None:
            end_group(self._submit_sp.pid)
        super().on_kill()


def submit_settings(conn_id: str, configured: SparkSettings) -> SparkSettings:
    """The settings with Spark's master as the provider reads the connection."""
    master = str(DriverHook(environment={}, conn_id=conn_id)._connection["master"])  # noqa: SLF001
    return configured.model_copy(update={"master": master})


def error_line(lines: Iterable[str]) -> str:
    """The job's own error among the last lines it printed, or else the last line."""
    lines = list(lines)
    ours = [line for line in lines if _TALLY_ERROR.match(line)]
    return (ours or lines or ["it printed nothing"])[-1]


def end_group(leader: int, grace_s: float = GRACE_S) -> None:
    """End all processes of a group: SIGTERM, then SIGKILL."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, kind)
        deadline = time.monotonic() + grace_s
        while _is_alive(leader) and time.monotonic() < deadline:
            time.sleep(0.05)


def _is_alive(group: int) -> bool:
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                return True
    return False


def driver_environment(config: Path, secrets: Path) -> dict[str, str]:
    """The environment of the driver: this task's, with the paths of configuration and secrets."""
    dropped = (*_CARRIED, *_WITHHELD)
    kept = {key: value for key, value in os.environ.items() if not key.upper().startswith(dropped)}
    # Airflow may run outside an activated environment: the spark-submit of this Python is on the
    # path too, as the last one.
    programs = os.pathsep.join(
        [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    )
    return (
        kept
        | _own_spark_home(programs)
        | {
            "PATH": programs,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            CONFIG_VARIABLE: str(config),
            SECRETS_VARIABLE: str(secrets),
        }
    )


def _own_spark_home(path: str) -> dict[str, str]:
    """``SPARK_HOME``, when spark-submit is the one of this Python.

    Otherwise its shell script looks for Spark, and fails if Python's path contains a space.
    """
    submit = shutil.which("spark-submit", path=path)
    pyspark = importlib.util.find_spec("pyspark")
    if "SPARK_HOME" in os.environ or submit is None or pyspark is None or pyspark.origin is None:
        return {}
    if Path(submit).parent != Path(sys.executable).parent:
        return {}
    return {"SPARK_HOME": str(Path(pyspark.origin).parent)}


def submit_conf(options: Mapping[str, str], jvm_flags: str) -> dict[str, str]:
    """The part of the session's configuration that spark-submit needs for the JVM that it starts.

    Args:
        options: The session's configuration; its ``spark.driver.extraJavaOptions`` replaces the
            flags.
        jvm_flags: Flags of the driver's JVM; may be empty.
    """
    defaults = {"spark.pyspark.python": sys.executable, "spark.log.level": LOG_LEVEL}
    shown = {k: v for k, v in options.items() if not _SENSITIVE.search(k)}
    java_options = with_logging(shown.get(JAVA_OPTIONS, jvm_flags))
    return defaults | shown | {JAVA_OPTIONS: java_options}
