"""What is known of a pipeline besides the ledger and Kafka: the engine, and Airflow where asked."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tally.config.servers import SparkSettings
from tally.config.settings import Settings
from tally.errors import SparkUnavailableError
from tally.views import ErrorView

ENGINE_PATIENCE_S: Final = 3.0
_PORT: Final = 15002  # Spark Connect's own default


CONNECTIONS: Final = ("tally_kafka", "tally_mysql", "tally_spark")
AIRFLOW_PATIENCE_S: Final = 60

# In a process of its own: importing Airflow takes seconds, sets up logging and leaves hooks behind.
# Only the types of the connections come back; no secret leaves that process.
_ASK: Final = """
import json, sys
from airflow.exceptions import AirflowNotFoundException
from airflow.models import Connection
import pkgutil
unusable = {}
for name in sys.argv[2].split():
    try:
        pkgutil.resolve_name(name)
    except Exception as error:
        unusable[name] = str(error)
types = {}
for name in sys.argv[1].split():
    try:
        types[name] = Connection.get_connection_from_secrets(name).conn_type
    except AirflowNotFoundException:
        types[name] = None
paused = alive = None
try:
    from airflow.jobs.job import most_recent_job
    from airflow.models import DagModel
    from airflow.utils.session import create_session
    with create_session() as session:
        dags = session.query(DagModel.dag_id, DagModel.is_paused).filter(
            DagModel.dag_id.in_(sys.argv[3:]), ~DagModel.is_stale
        )
        paused = {dag_id: is_paused for dag_id, is_paused in dags}
        job = most_recent_job("SchedulerJob", session=session)
        alive = job is not None and job.is_alive()
except Exception:  # connections may come from the environment, where no database is reachable
    pass
found = {"types": types, "paused": paused, "scheduler_alive": alive, "unusable": unusable}
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What is known of the pipelines' surroundings besides the ledger and Kafka."""

    engine_error: ErrorView | None = None
    """Why the engine cannot count; None when it can, or was not asked."""
    types: Mapping[str, str | None] | None = None
    """The type of each of Airflow's connections; None for one that does not exist, and for all
    where Airflow did not answer, or was not asked."""
    paused: Mapping[str, bool] | None = None
    """Whether a DAG is paused, by id, of those that Airflow knows; None without its database."""
    scheduler_alive: bool | None = None
    """Whether a scheduler has sent a heartbeat lately; None without Airflow's database."""
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Notifiers that are configured and cannot be imported there, and why."""


UNKNOWN: Final = Surroundings()
"""Neither Airflow nor the engine was asked."""


def look_around(settings: Settings, airflow: Mapping[str, str] | None = None) -> Surroundings:
    """The surroundings of all pipelines that are right.

    Args:
        settings: The configuration.
        airflow: Environment variables that say which Airflow to ask, besides this process's; None
            to ask none. Asking takes seconds.
    """
    found = UNKNOWN
    if airflow is not None and is_configured({**os.environ, **airflow}):
        found = ask_airflow(airflow, settings)
    return replace(found, engine_error=engine_error(settings.spark))


def engine_error(spark: SparkSettings) -> ErrorView | None:
    """Why the engine cannot be reached; None when it can, or when each run starts its own.

    Only a connection is opened, cheap enough for every look at a pipeline; ``tally doctor`` checks
    the rest.
    """
    if not spark.is_connect:
        return None
    address = urlsplit(spark.master)
    try:
        host, port = address.hostname or "", address.port or _PORT
        with socket.create_connection((host, port), timeout=ENGINE_PATIENCE_S):
            return None
    except (OSError, ValueError) as error:  # a port or a name that is none
        unreachable = SparkUnavailableError(
            f"the Spark Connect server {address.netloc} cannot be reached: {error}",
            next_step="start it, or correct spark.master or the connection tally_spark",
        )
        return ErrorView.of(unreachable)


def is_configured(environ: Mapping[str, str]) -> bool:
    """Whether an Airflow is installed and configured here."""
    if importlib.util.find_spec("airflow") is None:
        return False
    if any(name.startswith("AIRFLOW_CONN_TALLY_") for name in environ):
        return True
    home = environ.get("AIRFLOW_HOME")
    return bool(home) or (Path.home() / "airflow" / "airflow.cfg").is_file()


def ask_airflow(environ: Mapping[str, str], settings: Settings) -> Surroundings:
    """Ask the Airflow that is configured here; nothing is known when it does not answer.

    Args:
        environ: Environment variables that say which Airflow it is, besides this process's.
        settings: The pipelines; the DAG of each has its name.
    """
    notifiers = {of["class"] for one in settings.pipelines.values() for of in one.notifiers}
    words = (" ".join(CONNECTIONS), " ".join(sorted(notifiers)), *sorted(settings.pipelines))
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK, *words],
            capture_output=True,
            text=True,
            timeout=AIRFLOW_PATIENCE_S,
            check=True,
            env={**os.environ, **environ},
        )
        return Surroundings(**json.loads(answer.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return UNKNOWN
