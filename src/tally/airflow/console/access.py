"""Who may see and start what: Airflow decides, by its rights to the DAGs."""

from typing import Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
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
"""Dependencies of a route with ``dag_id``: whoever may read that DAG."""

OF_RUN: Final = [Depends(requires_access_dag("GET", DagAccessEntity.XCOM))]
"""Dependencies of a route with ``dag_id`` that shows what a run has handed on."""


def may_read(dag_id: str, user: Any) -> bool:
    """Whether a user may read a DAG."""
    return _manager().is_authorized_dag(method="GET", details=_details(dag_id), user=user)


def may_read_reports(dag_id: str, user: Any) -> bool:
    """Whether a user may read what the runs of a DAG have handed on."""
    return _manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.XCOM, details=_details(dag_id), user=user
    )


def may_trigger(dag_id: str, user: Any) -> bool:
    """Whether a user may start a run of a DAG; Airflow asks again when it is started."""
    return _manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=_details(dag_id), user=user
    )


def may_unpause(dag_id: str, user: Any) -> bool:
    """Whether a user may unpause a DAG."""
    return _manager().is_authorized_dag(method="PUT", details=_details(dag_id), user=user)


def is_paused(dag_id: str) -> bool:
    """Whether runs of a DAG wait until somebody unpauses it."""
    return dag_id in DagModel.get_paused_dag_ids([dag_id])


def _manager() -> BaseAuthManager[Any]:
    return get_auth_manager()


def _details(dag_id: str) -> DagDetails:
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
