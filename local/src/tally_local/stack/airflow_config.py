"""The files that the local stack's Airflow reads: configuration, connections and passwords."""

import json
from collections.abc import Mapping
from configparser import ConfigParser
from io import StringIO
from pathlib import Path
from types import MappingProxyType

from tally_local.stack.credentials import Credentials
from tally_local.stack.mysql_server import CONSOLE_USER, DATABASE, USER
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.spark_cluster import cluster_master
from tally_local.stack.spark_server import HOST

ADMIN = "admin"
# Each of Tally's tasks may start a JVM, and the machine is a developer's.
PARALLELISM = 8


def airflow_cfg(
    *,
    project: Path,
    folder: Path,
    port: int,
    credentials: Credentials,
    connections: Path,
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
            "dags_folder": project / "dags",
            "plugins_folder": project / "plugins",
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": PARALLELISM,
            "fernet_key": credentials.airflow_fernet,
            "hostname_callable": "socket.gethostname",
            "simple_auth_manager_users": f"{ADMIN}:admin",
            "simple_auth_manager_passwords_file": folder / "passwords.json",
            "execution_api_server_url": f"{url}/execution/",
            "min_serialized_dag_update_interval": 5,
        },
        # SQLite has one writer at a time; by default another gives up after 5 s.
        "database": {"sql_alchemy_conn": f"sqlite:///{folder / 'airflow.db'}?timeout=60"},
        # No log server runs (see airflow_server.SHIM), so the API server must read the log files.
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
            "backend_kwargs": json.dumps({"connections_file_path": str(connections)}),
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
            "dag_bundle_storage_path": folder / "bundles",
        },
    }
    parser = ConfigParser(interpolation=None)
    for section in {**sections, **further}:
        values = sections.get(section, {})
        given = {**values, **further.get(section, {})}
        parser[section] = {key: str(value).replace("%", "%%") for key, value in given.items()}
    text = StringIO()
    parser.write(text)
    return text.getvalue()


def connections_json(ports: Mapping[str, int], credentials: Credentials) -> str:
    """The connections of the stack's own servers, as Airflow's local-filesystem backend reads them.

    Airflow reads the file at each lookup, so a server that came back on another port is found.
    """
    connections: dict[str, dict[str, object]] = {"tally_spark": _spark(ports, credentials)}
    if "kafka" in ports:
        connections["tally_kafka"] = {
            "conn_type": "kafka",
            "extra": {"bootstrap.servers": f"{LOOPBACK}:{ports['kafka']}"},
        }
    if "mysql" in ports:
        connections["tally_mysql"] = {
            "conn_type": "mysql",
            "host": LOOPBACK,
            "port": ports["mysql"],
            "login": USER,
            "password": credentials.mysql_tally,
            "schema": DATABASE,
        }
        connections["tally_console"] = {
            "conn_type": "mysql",
            "login": CONSOLE_USER,
            "password": credentials.mysql_console,
        }
    return json.dumps(connections, indent=2) + "\n"


def _spark(ports: Mapping[str, int], credentials: Credentials) -> dict[str, object]:
    """The server that is kept warm; while there is none, a Spark for each batch."""
    if "spark" in ports:
        return {
            "conn_type": "spark_connect",
            "host": HOST,
            "port": ports["spark"],
            "password": credentials.spark_token,
        }
    # In the format of the Spark provider; Python runs on these masters only in client mode.
    return {
        "conn_type": "spark",
        "host": cluster_master(ports) if "cluster" in ports else "local[2]",
        "extra": {"spark-binary": "spark-submit", "deploy-mode": "client"},
    }


def passwords_json(credentials: Credentials) -> str:
    """SimpleAuthManager's password file."""
    return json.dumps({ADMIN: credentials.airflow_admin}) + "\n"
