"""What the plugin registers: an application that is imported with its first request."""

from functools import cached_property
from pathlib import Path
from typing import Any

from tally.airflow.policies import RUN_PATH, URL_PREFIX


class LazyConsole:
    """The console as an ASGI application.

    Airflow loads plugins in every process, workers included; only the API server needs the pages,
    and only it has what they import.
    """

    def __init__(self, config: Path) -> None:
        self._config = config

    @cached_property
    def _app(self) -> Any:
        from tally.airflow.console.app import create_console

        return create_console(self._config)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request to the application."""
        await self._app(scope, receive, send)


def fastapi_apps(config: Path) -> list[dict[str, Any]]:
    """The console, under ``/tally``."""
    return [{"app": LazyConsole(config), "url_prefix": URL_PREFIX, "name": "tally"}]


def external_views() -> list[dict[str, Any]]:
    """The console in Airflow's navigation, and a tab on each run.

    Relative addresses, since Airflow may be below a path.
    """
    run = RUN_PATH.lstrip("/")
    return [
        {
            "name": "Tally",
            "href": f"{URL_PREFIX.lstrip('/')}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "tally",
        },
        {
            "name": "Tally",
            "href": f"{run}?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "tally_run",
        },
    ]
