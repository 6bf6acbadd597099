"""Who may see and start what: Airflow decides, by its rights to the DAGs."""

from typing import Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
from airflow.models import DagModel
from fastapi import Depends

SIGNED_IN: Final = [Depends(requires_access_view(AccessView.WEBSITE))]
"""Dependencies of a route that shows no pipeline by itself."""

OF_DAG: Final = [Depends(requires_access_dag("GET"))]
"""Dependencies of a route with ``dag_id``: for users who may read that DAG."""

OF_RUN: Final = [Depends(requires_access_dag("GET", DagAccessEntity.XCOM))]
"""Dependencies of a route with ``dag_id`` that shows what a run has handed on."""

Right = tuple[Any, DagAccessEntity | None]

READ: Final[Right] = ("GET", None)
READ_REPORTS: Final[Right] = ("GET", DagAccessEntity.XCOM)
"""To read what the runs of a DAG have handed on."""
READ_LINES: Final[Right] = ("PUT", DagAccessEntity.TASK_LOGS)
"""To see the lines themselves: a right that Airflow asks for nowhere else, so that it can be given
by itself. A user who only views has counts, and no bytes."""
TRIGGER: Final[Right] = ("POST", DagAccessEntity.RUN)
"""To start a run of a DAG; Airflow asks again when it is started."""
UNPAUSE: Final[Right] = ("PUT", None)


def may(user: Any, right: Right, dag_id: str) -> bool:
    """Whether a user has a right to a DAG."""
    method, entity = right
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=entity, details=details, user=user
    )
