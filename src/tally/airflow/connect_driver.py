"""Starting and ending the driver for a Spark Connect server: a Python process without a JVM."""

import logging
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk.exceptions import AirflowException
from pydantic import ValidationError

from tally.airflow.driver import GRACE_S, KILLED, end_group, error_line
from tally.config.servers import SparkSettings
from tally.errors import SparkConnectionError

log = logging.getLogger(__name__)

_LINES_KEPT: Final = 100


class ConnectDriver:
    """The job in a process group of its own, with the interface of the spark-submit hook.

    Args:
        environment: The whole environment of the job.
        application_args: Its arguments.
        grace_s: Seconds that it has to close its session when it is ended.
    """

    def __init__(
        self,
        *,
        environment: Mapping[str, str],
        application_args: Sequence[str],
        grace_s: float = GRACE_S,
    ) -> None:
        self._grace_s = grace_s
        self._environment = {**environment, "PYTHONUNBUFFERED": "1"}
        self._arguments = list(application_args)
        self._process: subprocess.Popen[str] | None = None
        self._killed = False
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)

    @property
    def exit_code(self) -> int | None:
        """The job's exit code."""
        return None if self._process is None else self._process.returncode

    @property
    def error_line(self) -> str:
        """The job's own error, or the last line that it printed."""
        return error_line(self._lines)

    def submit(self, application: str) -> None:
        """Run the job to its end; what it prints goes to the task's log.

        Raises:
            AirflowException: It ended with an exit code other than 0, or it was killed.
        """
        if self._killed:
            raise AirflowException(KILLED)
        with subprocess.Popen(
            [sys.executable, application, *self._arguments],
            env=self._environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as self._process:
            try:
                self._follow(self._process)
            except BaseException:  # Airflow's task timeout is no AirflowException
                self.on_kill()
                raise
        if self._process.returncode:
            raise AirflowException(
                f"the driver ended with exit code {self._process.returncode}: {self.error_line}"
            )

    def _follow(self, process: subprocess.Popen[str]) -> None:
        if self._killed:  # on_kill came before the process was known
            end_group(process.pid, self._grace_s)
        for line in process.stdout or ():
            self._lines.append(line.rstrip())
            log.info("%s", line.rstrip())

    def on_kill(self) -> None:
        """End the job; it closes its session, and the server ends what runs in it.

        One that starts at this moment is ended too.
        """
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            end_group(self._process.pid, self._grace_s)


def connect_settings(conn_id: str, configured: SparkSettings) -> SparkSettings:
    """The settings with the server's address and token as the provider reads the connection.

    Raises:
        SparkConnectionError: The connection gives no address of a Spark Connect server.
    """
    try:
        url = str(SparkConnectHook(conn_id).get_connection_url())
        # A token that was configured for another server must not be sent to this one.
        return SparkSettings.model_validate(
            {**dict(configured), "master": url, "connect_token": ""}
        )
    except ValueError as error:
        cause = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SparkConnectionError(
            f"connection {conn_id} gives no address of a Spark Connect server: {cause}",
            next_step="give it the server as host and port, a user id as login, the token as "
            'password, and "use_ssl" as an extra',
        ) from None
