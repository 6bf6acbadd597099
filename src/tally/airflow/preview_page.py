"""The page that shows a replay's preview, for Airflow's API server: plain HTML, from XCom."""

from typing import Any

from airflow.models.xcom import XComModel
from airflow.utils.session import create_session

from tally.airflow.replay_tasks import PREVIEW, SHOWN_KEY


def find_preview(dag_id: str, run_id: str) -> dict[str, Any] | None:
    """The XCom of the task ``preview`` of a run; None when there is none yet."""
    with create_session() as session:
        row = session.scalars(
            XComModel.get_many(run_id=run_id, dag_ids=dag_id, task_ids=PREVIEW, key=SHOWN_KEY)
        ).first()
        found: dict[str, Any] | None = None if row is None else XComModel.deserialize_value(row)
    return found
