"""Runs of Tally's DAGs, as Airflow's own database has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from airflow.models import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import select

from tally.airflow.audit_dag import AUDIT, PRUNE, REPORT_KEY
from tally.airflow.count import COUNT
from tally.airflow.losses_dag import DECIDE, LOOK, SETTLE
from tally.airflow.minute_dag import BLOCKED, PLAN
from tally.airflow.replay_dag import OUTCOME, PREVIEW, REQUEST

ORDER: Final = (
    *(PLAN, PREVIEW, REQUEST, COUNT, BLOCKED, OUTCOME),
    *(LOOK, DECIDE, SETTLE, AUDIT, PRUNE),
)
"""The tasks of Tally's DAGs, in the order in which they run."""

TASKS_MAX: Final = 500
"""Tasks of a run that are shown."""

FINAL: Final = frozenset({"success", "failed"})
"""States of a run that has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run of a DAG."""

    state: str
    started_at: datetime | None
    user: str
    """Who has triggered it; empty when the schedule did."""
    conf: Mapping[str, Any]
    """What it was triggered with."""
    tasks: list[dict[str, str]]
    """The ``state`` of each task, ``waiting`` before Airflow has one; and its ``title``: its name,
    with that of its batch."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen in it by itself."""
        return self.state in FINAL


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRun:
    """A run of an audit, and what it has found."""

    run_id: str
    state: str
    ended_at: datetime | None
    report: Mapping[str, Any] | None
    """The XCom of its task; None when it has none."""


def find_run(dag_id: str, run_id: str) -> Run | None:
    """A run with the states of its tasks; None when Airflow has none of that id."""
    with create_session() as session:
        run = session.scalar(
            select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id).limit(1)
        )
        if run is None:
            return None
        tasks = list(
            session.execute(
                select(  # type: ignore[call-overload]  # a hybrid property is a column, too
                    TaskInstance.task_id,
                    TaskInstance.state,
                    TaskInstance.rendered_map_index,
                )
                .where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
                .order_by(TaskInstance.map_index, TaskInstance.task_id)  # mapped ones come last
                .limit(TASKS_MAX)
            )
        )
        tasks = sorted(tasks, key=lambda task: ORDER.index(task[0]) if task[0] in ORDER else -1)
        return Run(
            state=str(run.state),
            started_at=run.start_date,
            user=run.triggering_user_name or "",
            conf=dict(run.conf or {}),
            tasks=[
                {
                    "state": str(state or "waiting"),
                    "title": f"{task_id}: {name}" if name else task_id,
                }
                for task_id, state, name in tasks
            ],
        )


def find_xcom(dag_id: str, run_id: str, task_id: str, key: str) -> Any:
    """A value that a task of a run has handed on; None when it has not."""
    with create_session() as session:
        row = session.scalars(
            XComModel.get_many(run_id=run_id, dag_ids=dag_id, task_ids=task_id, key=key).limit(1)
        ).first()
        return None if row is None else XComModel.deserialize_value(row)


def latest_report(dag_id: str) -> AuditRun | None:
    """The latest audit that has ended with a report; None before the first one."""
    with create_session() as session:
        found = session.execute(
            select(XComModel, DagRun.state, DagRun.end_date)
            .join(DagRun, (DagRun.dag_id == XComModel.dag_id) & (DagRun.run_id == XComModel.run_id))
            .where(
                XComModel.dag_id == dag_id,
                XComModel.task_id == AUDIT,
                XComModel.key == REPORT_KEY,
                DagRun.end_date.is_not(None),
            )
            .order_by(XComModel.timestamp.desc())
            .limit(1)
        ).first()
        if found is None:
            return None
        xcom, state, ended_at = found
        report = XComModel.deserialize_value(xcom)
    return AuditRun(run_id=xcom.run_id, state=str(state), ended_at=ended_at, report=report)


def latest_audits(dag_id: str, limit: int) -> list[AuditRun]:
    """The latest runs of an audit, newest first."""
    with create_session() as session:
        runs = session.execute(
            select(DagRun.run_id, DagRun.state, DagRun.end_date)
            .where(DagRun.dag_id == dag_id)
            .order_by(DagRun.run_after.desc())
            .limit(limit)
        ).all()
    return [
        AuditRun(
            run_id=run_id,
            state=str(state),
            ended_at=ended_at,
            report=find_xcom(dag_id, run_id, AUDIT, REPORT_KEY),
        )
        for run_id, state, ended_at in runs
    ]
