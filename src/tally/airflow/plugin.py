"""What the plugin registers: an application that is imported with its first request."""

from functools import cached_property
from pathlib import Path
from typing import Any

from tally.airflow.addresses import URL_PREFIX


class LazyStatusApp:
    """The status page as an ASGI application.

    Airflow loads plugins in every process, workers included; only the API server needs the page,
    and only it has what the page imports.
    """

    def __init__(self, config: Path) -> None:
        self._config = config

    @cached_property
    def _app(self) -> Any:
        from tally.airflow.status_page import create_status_app

        return create_status_app(self._config)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request to the application."""
        await self._app(scope, receive, send)


def fastapi_apps(config: Path) -> list[dict[str, Any]]:
    """The page's application, under ``/tally``."""
    return [{"app": LazyStatusApp(config), "url_prefix": URL_PREFIX, "name": "tally"}]


def external_views() -> list[dict[str, Any]]:
    """The page in Airflow's navigation; a relative address, since Airflow may be below a path."""
    return [
        {
            "name": "Tally",
            "href": f"{URL_PREFIX.lstrip('/')}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "tally",
        }
    ]
