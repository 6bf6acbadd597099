"""Checks of Airflow's connections, where Airflow is used."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tally.app.doctor.diagnosis import Diagnosis, fail, ok, skip, warn

CONNECTIONS: Final = ("tally_kafka", "tally_mysql", "tally_spark")
SPARK_TYPES: Final = ("spark", "spark_connect")
PATIENCE_S: Final = 60

# In a process of its own: importing Airflow takes seconds, sets up logging and leaves hooks behind.
# Only the types of the connections come back; no secret leaves that process.
_ASK: Final = """
import json, sys
from airflow.exceptions import AirflowNotFoundException
from airflow.models import Connection
types = {}
for name in sys.argv[1:]:
    try:
        types[name] = Connection.get_connection_from_secrets(name).conn_type
    except AirflowNotFoundException:
        types[name] = None
print("\\n" + json.dumps(types))
"""


def check_airflow() -> Iterator[Diagnosis]:
    """Whether the DAGs would find their connections."""
    if importlib.util.find_spec("airflow") is None:
        yield skip("airflow.connections", "Airflow is not installed here")
        return
    if not _is_configured(os.environ):
        yield skip("airflow.connections", "no AIRFLOW_HOME: Airflow is not configured here")
        return
    types = _connection_types()
    if types is None:
        yield warn(
            "airflow.connections",
            "Airflow could not be asked for its connections",
            "look at: airflow connections list",
        )
        return
    for name in CONNECTIONS:
        yield check_connection(name, types.get(name))


def check_connection(name: str, conn_type: str | None) -> Diagnosis:
    """Whether a connection is there and of a type that Tally knows.

    Args:
        name: The connection's id.
        conn_type: Its type; None when the connection does not exist.
    """
    check = f"airflow.{name}"
    if name != "tally_spark":
        if conn_type is None:
            return ok(check, "not set: the configuration's own values apply")
        return ok(check, f"of type {conn_type}")
    if conn_type is None:
        return fail(
            check,
            "not set: Airflow would submit to YARN",
            "airflow connections add tally_spark --conn-type spark --conn-host 'local[*]'",
        )
    if conn_type not in SPARK_TYPES:
        return fail(check, f"of type {conn_type}", f"make its type {' or '.join(SPARK_TYPES)}")
    return ok(check, f"of type {conn_type}")


def _is_configured(environ: Mapping[str, str]) -> bool:
    if any(name.startswith("AIRFLOW_CONN_TALLY_") for name in environ):
        return True
    home = environ.get("AIRFLOW_HOME")
    return bool(home) or (Path.home() / "airflow" / "airflow.cfg").is_file()


def _connection_types() -> dict[str, str | None] | None:
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK, *CONNECTIONS],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        types: dict[str, str | None] = json.loads(asked.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return None
    return types
