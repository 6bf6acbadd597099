"""Tally's DAGs and their runs, as Airflow's own database has them, and its audit log."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from airflow.models import DagModel, DagRun
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import and_, select

from tally.airflow.audit_dag import AUDIT, REPORT_KEY
from tally.config.settings import Settings
from tally.status.surroundings import Surroundings, engine_error

LINES_SHOWN: Final = "tally_lines_shown"
"""The event of Airflow's audit log for whoever is shown lines."""
_WHICH: Final = frozenset(
    {"at", "minute", "label", "value", "batch", "partition", "offset", "since", "until", "reason"}
)
TASKS_MAX: Final = 500
"""Tasks of a run that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRun:
    """A run of an audit, and what it has found."""

    state: str
    ended_at: datetime | None
    report: Mapping[str, Any]
    """The XCom of its task; empty when it has none."""


def is_paused(dag_id: str) -> bool:
    """Whether runs of a DAG wait until it is unpaused."""
    return dag_id in DagModel.get_paused_dag_ids([dag_id])


def surroundings_now(settings: Settings) -> Surroundings:
    """What is known of Airflow and of the engine."""
    paused = dict.fromkeys(DagModel.get_paused_dag_ids(list(settings.pipelines)), True)
    return Surroundings(paused=paused, engine_error=engine_error(settings.spark))


def tasks_of(dag_id: str, run_id: str) -> Sequence[Any]:
    """The tasks of a run, in order: ``task_id``, ``state`` and the name of its batch."""
    with create_session() as session:
        tasks = session.execute(
            select(  # type: ignore[call-overload]  # a hybrid property is a column, too
                TaskInstance.task_id,
                TaskInstance.state,
                TaskInstance.rendered_map_index,
                TaskInstance.priority_weight,
            )
            .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
            .order_by(TaskInstance.map_index, TaskInstance.task_id)  # mapped ones come last
            .limit(TASKS_MAX)
        ).all()
    # Airflow gives a task the more weight the more tasks follow it.
    return sorted(tasks, key=lambda task: -(task.priority_weight or 0))


def find_xcom(dag_id: str, run_id: str, task_id: str, key: str) -> Any:
    """A value that a task of a run has handed on; None when it has not."""
    with create_session() as session:
        row = session.scalars(
            XComModel.get_many(run_id=run_id, dag_ids=dag_id, task_ids=task_id, key=key).limit(1)
        ).first()
        return None if row is None else XComModel.deserialize_value(row)


def audits(dag_id: str, *, limit: int, reported: bool = False) -> list[AuditRun]:
    """The latest runs of an audit, newest first.

    Args:
        dag_id: The audit.
        limit: How many at most.
        reported: Whether only those that have ended with a report, by the time of that.
    """
    report = and_(
        XComModel.dag_id == DagRun.dag_id,
        XComModel.run_id == DagRun.run_id,
        XComModel.task_id == AUDIT,
        XComModel.key == REPORT_KEY,
    )
    runs = select(DagRun.state, DagRun.end_date, XComModel).where(DagRun.dag_id == dag_id)
    if reported:
        runs = runs.join(XComModel, report).where(DagRun.end_date.is_not(None))
        runs = runs.order_by(XComModel.timestamp.desc())
    else:
        runs = runs.outerjoin(XComModel, report).order_by(DagRun.run_after.desc())
    with create_session() as session:
        return [
            AuditRun(
                state=str(state),
                ended_at=ended_at,
                report=XComModel.deserialize_value(xcom) if xcom else {},
            )
            for state, ended_at, xcom in session.execute(runs.limit(limit))
        ]


def record_reader(dag_id: str, user: Any, page: str, asked: Mapping[str, str]) -> None:
    """Enter into Airflow's audit log who is shown lines of a pipeline, and which.

    Args:
        dag_id: The pipeline's DAG.
        user: Airflow's user.
        page: The page's name.
        asked: The parameters of its address; a text that is looked for is left out.
    """
    which = {key: value for key, value in asked.items() if key in _WHICH}
    extra = json.dumps({**which, "page": page})
    with create_session() as session:
        session.add(Log(LINES_SHOWN, owner=user.get_name(), dag_id=dag_id, extra=extra))
