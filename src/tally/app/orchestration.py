"""What Airflow knows of Tally: connections, paused DAGs, whether its scheduler is alive."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CONNECTIONS: Final = ("tally_kafka", "tally_mysql", "tally_spark")
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
