"""The Airflow of one stack: ``airflow standalone`` with LocalExecutor and SQLite."""

import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Mapping
from configparser import ConfigParser
from dataclasses import dataclass, field
from datetime import datetime
from io import StringIO
from pathlib import Path
from types import MappingProxyType

from tally.config.loading import CONFIG_NAME
from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.errors import StackError
from tally.spark.jars import spark_home
from tally.spark.java import JAVA_ENVIRONMENT
from tally_local.stack.home import Credentials, Layout, write_private, write_private_json
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command, Processes
from tally_local.stack.server import Part, Server, page_of

ADMIN = "admin"
BEATING = ("scheduler", "dag_processor", "triggerer")
"""The parts whose heartbeats Airflow tells."""

# `airflow standalone` starts its parts as `airflow PART` from PATH. The log servers would listen on
# every address of the machine; they are not needed, as the API server reads the log files itself.
SHIM = """\
#!/bin/sh
case "$1" in
    scheduler|triggerer) set -- "$@" --skip-serve-logs ;;
esac
exec {python} -m airflow "$@"
"""


@dataclass(frozen=True, kw_only=True)
class AirflowServer(Server):
    """An Airflow with its home in the stack's, DAGs and plugins from the checkout."""

    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Further options, by section."""

    part = Part.AIRFLOW
    ports = ("airflow",)
    start_timeout_s = 240.0  # the first start makes the database
    stop_timeout_s = 20.0

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Write configuration, password and the start script of its parts."""
        if importlib.util.find_spec("airflow") is None:
            raise StackError(
                "Airflow is not installed in this Python",
                next_step="make setup, or install the extra: pip install 'kafka-tally[airflow]'",
            )
        credentials = Credentials.of(self.layout.credentials)
        config = airflow_cfg(self.layout, ports["airflow"], credentials, self.options)
        write_private(self.folder / "airflow.cfg", config)
        write_private_json(self.folder / "passwords.json", {ADMIN: credentials.airflow_admin})
        shim = self.folder / "bin" / "airflow"
        write_private(shim, SHIM.format(python=shlex.quote(sys.executable)))
        shim.chmod(0o700)
        return Command(
            argv=(sys.executable, "-m", "airflow", "standalone"),
            cwd=self.folder,
            env=self._environment(shim.parent),
        )

    def is_ready(self, ports: Mapping[str, int]) -> bool:
        """Whether the API answers and all parts have sent a heartbeat since the start."""
        health = page_of(f"{self.address(ports)}/api/v2/monitor/health") or {}
        beats = [health.get(part, {}).get(f"latest_{part}_heartbeat") for part in BEATING]
        start = Processes(self.layout).record(self.part)
        return start is not None and all(
            beat and datetime.fromisoformat(beat).timestamp() > start.started_at for beat in beats
        )

    @classmethod
    def address(cls, ports: Mapping[str, int]) -> str:
        """The address for a browser."""
        return f"http://{LOOPBACK}:{ports['airflow']}"

    def _environment(self, shims: Path) -> dict[str, str]:
        inherited = {n: v for n, v in os.environ.items() if not n.lstrip("_").startswith("AIRFLOW")}
        programs = Path(sys.executable).parent
        path = os.pathsep.join([str(shims), str(programs), os.environ.get("PATH", os.defpath)])
        return {
            **inherited,
            **JAVA_ENVIRONMENT,
            # For `spark-submit`: this Python, and the loopback address only.
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_DIRS": str(self.folder / "spark"),
            "AIRFLOW_HOME": str(self.folder),
            "PATH": path,
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
            # Process titles would overwrite the environment, which is how its processes are found.
            "SPT_NOENV": "1",
            CONFIG_VARIABLE: os.environ.get(CONFIG_VARIABLE)
            or str(self.layout.project / CONFIG_NAME),
            SECRETS_VARIABLE: str(self.layout.overlay),
        }


def airflow_cfg(
    layout: Layout,
    port: int,
    credentials: Credentials,
    further: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
) -> str:
    """``airflow.cfg``: what differs from Airflow's defaults, and then what is ``further`` given.

    By default a crashed worker or a lost task is noticed after five minutes; a DAG that runs each
    minute would not run for that long.
    """
    url = f"http://{LOOPBACK}:{port}"
    backend = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
    sections: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": layout.project / "dags",
            "plugins_folder": layout.project / "plugins",
            "load_examples": False,
            "executor": "LocalExecutor",
            # Each of Tally's tasks may start a JVM, and the machine is a developer's.
            "parallelism": 8,
            "fernet_key": credentials.airflow_fernet,
            "hostname_callable": "socket.gethostname",
            "simple_auth_manager_users": f"{ADMIN}:admin",
            "simple_auth_manager_passwords_file": layout.airflow / "passwords.json",
            "execution_api_server_url": f"{url}/execution/",
            "min_serialized_dag_update_interval": 5,
        },
        # SQLite has one writer at a time; by default another gives up after 5 s.
        "database": {"sql_alchemy_conn": f"sqlite:///{layout.airflow / 'airflow.db'}?timeout=60"},
        # No log server runs (see SHIM), so the API server must read the log files.
        "logging": {"worker_log_server_port": 1, "trigger_log_server_port": 1},
        "api": {
            "log_fetch_timeout_sec": 1,
            "host": LOOPBACK,
            "port": port,
            "base_url": url,
            "secret_key": credentials.airflow_secret,
        },
        "api_auth": {"jwt_secret": credentials.airflow_jwt},
        "secrets": {
            "backend": backend,
            "backend_kwargs": json.dumps({"connections_file_path": str(layout.connections)}),
        },
        "scheduler": {
            "catchup_by_default": False,
            "orphaned_tasks_check_interval": 30,
            "task_instance_heartbeat_timeout": 60,
            "task_queued_timeout": 60,
            "task_queued_timeout_check_interval": 15,
        },
        "dag_processor": {
            "refresh_interval": 10,
            "dag_bundle_storage_path": layout.airflow / "bundles",
        },
    }
    parser = ConfigParser(interpolation=None)
    parser.read_dict(sections)
    parser.read_dict(further)
    text = StringIO()
    parser.write(text)
    return text.getvalue().replace("%", "%%")
