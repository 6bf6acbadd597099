"""The Airflow of one stack: ``airflow standalone`` with LocalExecutor and SQLite."""

import importlib.util
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from tally.config.loading import CONFIG_NAME
from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.errors import StackError
from tally.spark.java import JAVA_ENVIRONMENT
from tally_local.stack.airflow_config import airflow_cfg, connections_json, passwords_json
from tally_local.stack.credentials import Credentials
from tally_local.stack.layout import Layout
from tally_local.stack.pages import page_of
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.private_files import write_private
from tally_local.stack.processes import Command, Record
from tally_local.stack.server import Part

HEALTH = "/api/v2/monitor/health"
HEARTBEATS = {
    "scheduler": "latest_scheduler_heartbeat",
    "dag_processor": "latest_dag_processor_heartbeat",
    "triggerer": "latest_triggerer_heartbeat",
}

# `airflow standalone` starts its parts as `airflow PART` from PATH. The log servers would listen on
# every address of the machine; they are not needed, as the API server reads the log files itself.
SHIM = """\
#!/bin/sh
case "$1" in
    scheduler|triggerer) set -- "$@" --skip-serve-logs ;;
esac
exec {python} -m airflow "$@"
"""


class AirflowServer:
    """An Airflow with its home in the stack's, DAGs and plugins from the checkout."""

    part = Part.AIRFLOW
    ports = ("airflow",)
    start_timeout_s = 240.0  # the first start makes the database
    stop_timeout_s = 20.0

    def __init__(
        self,
        *,
        layout: Layout,
        credentials: Credentials,
        options: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
    ) -> None:
        self._layout = layout
        self._options = options
        self._folder = layout.airflow
        self._credentials = credentials

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Write configuration, password and the start script of its parts."""
        if importlib.util.find_spec("airflow") is None:
            raise StackError(
                "Airflow is not installed in this Python",
                next_step="make setup, or install the extra: pip install 'kafka-tally[airflow]'",
            )
        config = airflow_cfg(
            project=self._layout.project,
            folder=self._folder,
            port=ports["airflow"],
            credentials=self._credentials,
            connections=self.connections,
            further=self._options,
        )
        write_private(self._folder / "airflow.cfg", config)
        write_private(self._folder / "passwords.json", passwords_json(self._credentials))
        shim = self._folder / "bin" / "airflow"
        write_private(shim, SHIM.format(python=shlex.quote(sys.executable)))
        shim.chmod(0o700)
        return Command(
            argv=(sys.executable, "-m", "airflow", "standalone"),
            cwd=self._folder,
            env=self._environment(shim.parent),
        )

    @property
    def connections(self) -> Path:
        """The file with the connections of the stack's servers, in Airflow's format."""
        return self._folder / "connections.json"

    def write_connections(self, ports: Mapping[str, int]) -> None:
        """Write the current addresses of the other servers, for an Airflow that may be running."""
        write_private(self.connections, connections_json(ports, self._credentials))

    def is_ready(self, ports: Mapping[str, int], start: Record) -> bool:
        """Whether the API answers and all parts have sent a heartbeat since the start."""
        health = page_of(self.address(ports) + HEALTH)
        return health is not None and all(
            heartbeat > start.started_at for heartbeat in _heartbeats(health)
        )

    def address(self, ports: Mapping[str, int]) -> str:
        """The address for a browser."""
        return f"http://{LOOPBACK}:{ports['airflow']}"

    def _environment(self, shims: Path) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.lstrip("_").startswith("AIRFLOW")
        }
        programs = Path(sys.executable).parent
        path = os.pathsep.join([str(shims), str(programs), os.environ.get("PATH", os.defpath)])
        return {
            **inherited,
            **JAVA_ENVIRONMENT,
            **_spark_environment(self._folder),
            "AIRFLOW_HOME": str(self._folder),
            "PATH": path,
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
            # Process titles would overwrite the environment, which is how its processes are found.
            "SPT_NOENV": "1",
            CONFIG_VARIABLE: os.environ.get(CONFIG_VARIABLE)
            or str(self._layout.project / CONFIG_NAME),
            SECRETS_VARIABLE: str(self._layout.overlay),
        }


def _heartbeats(health: Mapping[str, Mapping[str, str | None]]) -> Iterator[float]:
    for part, key in HEARTBEATS.items():
        value = health.get(part, {}).get(key)
        yield datetime.fromisoformat(value).timestamp() if value else 0.0


def _spark_environment(folder: Path) -> dict[str, str]:
    """What ``spark-submit`` needs to run this Python and to listen on the loopback address only."""
    variables = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
    }
    spec = importlib.util.find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        variables["SPARK_HOME"] = str(Path(spec.origin).parent)
    return variables
