"""Checks of Airflow, where Airflow is used: its connections, its scheduler and Tally's DAGs."""

from collections.abc import Iterator, Sequence
from typing import Final

from tally.app.doctor.diagnosis import Diagnosis, fail, ok, skip, warn
from tally.app.orchestration import CONNECTIONS, Orchestration

SPARK_TYPES: Final = ("spark", "spark_connect")


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
            "wait until Airflow has read the DAGs' file again, or see why it cannot: airflow dags "
            "list-import-errors (locally: tally airflow cli dags list-import-errors)",
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
