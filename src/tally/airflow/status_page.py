"""The plugin's read-only pages, for Airflow's API server: plain HTML.

The status comes from the ledger, the preview of a replay from the XCom of its task.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    DagAccessEntity,
    DagDetails,
)
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    requires_access_dag,
    requires_access_view,
)
from airflow.models import DagModel
from fastapi import Depends, FastAPI, status
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tally.airflow.addresses import PREVIEW_PATH, URL_PREFIX
from tally.airflow.connections import connected_settings
from tally.airflow.preview_page import find_preview
from tally.airflow.status import PipelinePage, read_page
from tally.app.context import open_context
from tally.app.overview import PipelineSummary
from tally.clock import SystemClock
from tally.errors import TallyError

# The page is shown in an iframe of Airflow's own origin and runs no script.
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"
    ),
    "Cache-Control": "no-store",
}


def create_status_app(config: Path) -> FastAPI:
    """The page's application; Airflow mounts plugins' applications without any authentication.

    Args:
        config: The configuration file; it is read again for each request.
    """
    app = FastAPI(title="Tally", docs_url=None, redoc_url=None, openapi_url=None)

    # Airflow's dependencies authenticate each request. A plain function runs in a worker thread,
    # so that waiting for MySQL does not block the API server.
    @app.get("/", dependencies=[Depends(requires_access_view(AccessView.WEBSITE))])
    def show_status(user: GetUserDep) -> HTMLResponse:
        try:
            settings = connected_settings(config)
            names = [name for name in settings.names if _may_see(name, user)]
            paused = DagModel.get_paused_dag_ids(names)
            html = render(
                read_page(
                    open_context(settings),
                    {name: name in paused for name in names if name in settings.pipelines},
                ),
                [
                    PipelineSummary.disabled(name, mistakes)
                    for name, mistakes in settings.disabled.items()
                    if name in names
                ],
            )
        except TallyError as error:
            return HTMLResponse(
                render([], error=str(error)), status.HTTP_503_SERVICE_UNAVAILABLE, _HEADERS
            )
        return HTMLResponse(html, headers=_HEADERS)

    @app.get(
        PREVIEW_PATH.removeprefix(URL_PREFIX),
        dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.XCOM))],
    )
    def show_preview(dag_id: str, run_id: str) -> HTMLResponse:
        shown = find_preview(dag_id, run_id)
        html = _page("preview_page.html", shown=shown, dag_id=dag_id, run_id=run_id)
        found = status.HTTP_200_OK if shown else status.HTTP_404_NOT_FOUND
        return HTMLResponse(html, found, _HEADERS)

    return app


def render(
    pipelines: Sequence[PipelinePage],
    disabled: Sequence[PipelineSummary] = (),
    *,
    error: str = "",
) -> str:
    """The status page, the pipelines that are configured wrong first."""
    return _page(
        "status_page.html",
        pipelines=pipelines,
        disabled=disabled,
        error=error,
        now=_time(SystemClock().now()),
        time=_time,
        number=_number,
    )


def _page(template: str, **values: Any) -> str:
    environment = Environment(
        loader=PackageLoader("tally.airflow", "."), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template(template).render(**values)


def _may_see(pipeline: str, user: Any) -> bool:
    """Whether the user may read the pipeline's DAG."""
    manager: BaseAuthManager[Any] = get_auth_manager()
    return manager.is_authorized_dag(method="GET", details=DagDetails(id=pipeline), user=user)


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"
