"""Checks of Airflow, where Airflow is used: its connections, its scheduler and Tally's DAGs."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
count = int(sys.argv[1])
types = {}
for name in sys.argv[2 : 2 + count]:
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
            DagModel.dag_id.in_(sys.argv[2 + count :]), ~DagModel.is_stale
        )
        paused = {dag_id: is_paused for dag_id, is_paused in dags}
        job = most_recent_job("SchedulerJob", session=session)
        alive = job is not None and job.is_alive()
except Exception:  # connections may come from the environment, where no database is reachable
    pass
print("\\n" + json.dumps({"types": types, "paused": paused, "scheduler_alive": alive}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Orchestration:
    """What Airflow has answered."""

    types: Mapping[str, str | None]
    """The type of each connection; None for one that does not exist."""
    paused: Mapping[str, bool] | None
    """Whether a DAG is paused, by id, of those that Airflow knows; None without its database."""
    scheduler_alive: bool | None
    """Whether a scheduler has sent a heartbeat lately; None without its database."""


def is_configured(environ: Mapping[str, str]) -> bool:
    """Whether an Airflow is installed and configured here."""
    if importlib.util.find_spec("airflow") is None:
        return False
    if any(name.startswith("AIRFLOW_CONN_TALLY_") for name in environ):
        return True
    home = environ.get("AIRFLOW_HOME")
    return bool(home) or (Path.home() / "airflow" / "airflow.cfg").is_file()


def ask_airflow(environ: Mapping[str, str], pipelines: Sequence[str]) -> Orchestration | None:
    """Ask the Airflow that is configured here; None when it does not answer.

    Args:
        environ: Environment variables that say which Airflow it is, besides this process's.
        pipelines: The pipelines; the DAG of each has its name.
    """
    asked = [str(len(CONNECTIONS)), *CONNECTIONS, *pipelines]
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK, *asked],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
            env={**os.environ, **environ},
        )
        return Orchestration(**json.loads(answer.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, OSError, ValueError, IndexError):
        return None


def check_airflow(answer: Orchestration | None, pipelines: Sequence[str]) -> Iterator[Diagnosis]:
    """Whether the DAGs are there, find their connections, and are started.

    Args:
        answer: What Airflow has answered; None when it did not.
        pipelines: The pipelines.
    """
    if answer is None:
        yield warn(
            "airflow.connections",
            "Airflow could not be asked for its connections",
            "look at: airflow connections list",
        )
        return
    for name in CONNECTIONS:
        yield check_connection(name, answer.types.get(name))
    if answer.paused is None:
        yield skip("airflow.scheduler", "Airflow's database cannot be reached from here")
        return
    if answer.scheduler_alive:
        yield ok("airflow.scheduler", "it has sent a heartbeat lately")
    else:
        yield warn(
            "airflow.scheduler",
            "none has sent a heartbeat lately: no DAG is started",
            "airflow scheduler (locally: tally up)",
        )
    if unknown := [name for name in pipelines if name not in answer.paused]:
        yield warn(
            "airflow.dags",
            f"Airflow knows no DAG {', '.join(unknown)}",
            "airflow dags list-import-errors; tally airflow init writes the DAGs' file",
        )
    else:
        yield ok("airflow.dags", f"it knows {', '.join(pipelines)}")


def no_airflow() -> Diagnosis:
    """Airflow was not asked."""
    return skip("airflow.connections", "no Airflow is configured here (AIRFLOW_HOME)")


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
