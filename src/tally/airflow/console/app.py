"""The console's routes. Airflow mounts plugins' applications without any authentication.

Each route says whom it is for: a dependency of :mod:`tally.airflow.console.access`. All of them
only read. Answers are made in worker threads, so that waiting for MySQL does not block the API
server, and a bounded number at a time (:class:`tally.airflow.console.drawing.RequestLimit`).
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from tally.airflow.connections import connected_settings
from tally.airflow.console import metrics, pages, steering_pages
from tally.airflow.console.access import (
    OF_DAG,
    OF_RUN,
    READ,
    SIGNED_IN,
    TRIGGER,
    UNPAUSE,
    is_paused,
    may,
)
from tally.airflow.console.drawing import HEADERS, RequestLimit, draw, export
from tally.airflow.console.page import Asked, Page, Query
from tally.airflow.console.runs import TASKS_MAX, find_run
from tally.airflow.policies import AUDIT_SUFFIX, LOSSES_SUFFIX, REPLAY_SUFFIX
from tally.config.settings import Settings
from tally.context import console_context
from tally.errors import (
    ConfigError,
    TallyError,
    UnknownBatchError,
    UnknownPipelineError,
    UsageError,
)
from tally.mysql.pool import ConnectionPool
from tally.status.overview import PipelineSummary, overview
from tally.status.surroundings import Surroundings, engine_error
from tally.views import ErrorView

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"


PAGES: Final[Mapping[str, Callable[[Asked], Page]]] = {
    "": pages.overview_page,
    "minute": pages.minute_page,
    "kafka": pages.kafka_page,
    "partitions": pages.partitions_page,
    "strips": pages.strips_page,
    "batches": pages.batches_page,
    "batches/{batch_id}": pages.batch_page,
    "dead-letters": pages.dead_letters_page,
    "replay": steering_pages.replay_page,
    "losses": steering_pages.losses_page,
    "audit": steering_pages.audit_page,
}
"""The pages of a pipeline, by their address below it."""

ASK_KAFKA: Final = frozenset({"kafka", "strips"})
"""Those of them that ask Kafka."""


def create_console(config: Path) -> FastAPI:
    """The console's application.

    Args:
        config: The configuration file; it is read again for each request.
    """
    app = FastAPI(title="Tally", docs_url=None, redoc_url=None, openapi_url=None)
    console = _Console(config)
    limit = RequestLimit(at_a_time=8, queued_max=64)
    # A Kafka that does not answer holds up what asks it, and no page of the ledger.
    of_kafka = RequestLimit(at_a_time=4, queued_max=64)
    # Whoever asks for metrics has signed in nowhere, and takes no page's thread.
    of_metrics = RequestLimit(at_a_time=2, queued_max=8)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(HTTPException, _turned_away)

    @app.get("/", dependencies=SIGNED_IN)
    async def show_pipelines(request: Request, user: GetUserDep) -> Response:
        return await limit.run(partial(console.pipelines, request, user, ask_kafka=False))

    @app.get("/summaries", dependencies=SIGNED_IN)
    async def show_summaries(request: Request, user: GetUserDep) -> Response:
        return await of_kafka.run(partial(console.pipelines, request, user, ask_kafka=True))

    @app.get("/run", dependencies=OF_RUN)
    async def show_run(dag_id: str, run_id: str, request: Request, user: GetUserDep) -> Response:
        return await limit.run(partial(console.run, request, user, dag_id, run_id))

    @app.get("/metrics")
    async def show_metrics(request: Request) -> Response:
        return await of_metrics.run(partial(console.metrics, request))

    async def show_page(path: str, dag_id: str, request: Request, user: GetUserDep) -> Response:
        its_limit = of_kafka if path in ASK_KAFKA else limit
        return await its_limit.run(partial(console.page, request, user, dag_id, PAGES[path]))

    for path in PAGES:
        show = partial(show_page, path)
        app.get(f"/pipelines/{{dag_id}}/{path}", dependencies=OF_DAG)(show)
    return app


class _Console:
    """Answers requests with pages, exports of their tables, or errors."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._pool = ConnectionPool()

    def page(
        self, request: Request, user: Any, pipeline: str, compose: Callable[[Asked], Page]
    ) -> Response:
        """A page of one pipeline, for a user who has the right to its DAG."""
        frame = self.frame(request, user, pipeline)
        try:
            settings = connected_settings(self._config)
            frame |= {"pipelines": self._readable(settings, user)}
            if pipeline in settings.disabled:
                summary = PipelineSummary.disabled(pipeline, settings.disabled[pipeline])
                return draw("disabled.html", frame, {"summary": summary, "title": pipeline})
            if pipeline not in settings.pipelines:
                # Without the names of the others, to which the user may have no right.
                raise UnknownPipelineError(
                    f"no pipeline {pipeline!r} is configured", next_step="see the list of pipelines"
                )
            asked = Asked(
                ctx=console_context(settings, self._pool),
                pipeline=pipeline,
                query=Query(request.query_params),
                path=Query(request.path_params),
                user=user,
                surroundings=lambda: _surroundings(pipeline, engine_error(settings.spark)),
            )
            return _answer(compose(asked), asked.query, frame)
        except TallyError as error:
            return _failed(error, frame)

    def pipelines(self, request: Request, user: Any, *, ask_kafka: bool) -> Response:
        """All pipelines that the user may see; a single one at once, unless Kafka is asked."""
        frame = self.frame(request, user, "")
        try:
            settings = connected_settings(self._config)
            names = self._readable(settings, user)
            if len(names) == 1 and not ask_kafka:
                return RedirectResponse(f"pipelines/{names[0]}/", headers=HEADERS)
            engine = engine_error(settings.spark)
            view = overview(
                console_context(settings, self._pool),
                names=names,
                ask_kafka=ask_kafka,
                surroundings={name: _surroundings(name, engine) for name in names},
            )
        except TallyError as error:
            return _failed(error, frame)
        values = {"summaries": view.pipelines, "title": "Pipelines"}
        template = "summaries.html" if ask_kafka else "pipelines.html"
        return draw(template, {**frame, "pipelines": names}, values)

    def run(self, request: Request, user: Any, dag_id: str, run_id: str) -> Response:
        """A run of one of Tally's DAGs, also as a tab in Airflow."""
        pipeline, kind = _pipeline_of(dag_id)
        frame = self.frame(request, user, pipeline)
        found = find_run(dag_id, run_id)
        values: dict[str, Any] = {"run": found, "kind": kind, "title": "Run"}
        values |= {"dag_id": dag_id, "run_id": run_id, "waits": False}
        if found is not None and not found.has_ended:
            values["waits"] = is_paused(dag_id)
        try:
            settings = connected_settings(self._config)
            if pipeline not in settings.names or found is None:
                values["known"] = pipeline in settings.names
                return draw("no_run.html", frame, values, status.HTTP_404_NOT_FOUND)
            ctx = console_context(settings, self._pool)
            if kind == LOSSES_SUFFIX:
                values |= steering_pages.losses_run(dag_id, run_id, found.conf)
            if kind == REPLAY_SUFFIX:
                values |= steering_pages.replay_run(
                    ctx, pipeline, run_id, has_ended=found.has_ended
                )
            page = Page(
                template="run.html",
                title="Run",
                values={**values, "tasks_max": TASKS_MAX},
                tables=(
                    steering_pages.batches_of_run(
                        ctx, pipeline, dag_id, run_id, replay=values.get("outcome")
                    ),
                ),
            )
            return _answer(page, Query(request.query_params), frame)
        except TallyError as error:
            return _failed(error, frame)

    def metrics(self, request: Request) -> Response:
        """All pipelines' figures, for whoever has the token."""
        try:
            settings = connected_settings(self._config)
            if (answer := metrics.refused(settings.console, request)) is not None:
                return answer
            engine = engine_error(settings.spark)
            return metrics.exposition(
                console_context(settings, self._pool),
                partial(_surroundings, engine=engine),
                request.headers.get("accept"),
            )
        except TallyError as error:
            log.error("no metrics: %s", error)  # noqa: TRY400 - no bug
            return Response(status_code=status.HTTP_503_SERVICE_UNAVAILABLE)

    @staticmethod
    def _readable(settings: Settings, user: Any) -> list[str]:
        return [name for name in settings.names if may(user, READ, name)]

    @staticmethod
    def frame(request: Request, user: Any, pipeline: str) -> dict[str, Any]:
        """What every page has besides its own values."""
        route = request.scope["route"].path
        depth = route.count("/") - 1
        return {
            "root": "../" * depth,
            "airflow": "../" * (depth + 1),
            "pipeline": pipeline,
            "pipelines": [pipeline] if pipeline else [],
            "tab": route.split("/")[3] if route.count("/") > 2 else None,
            "here": route.lstrip("/").format(
                **{key: quote(value, safe="") for key, value in request.path_params.items()}
            ),
            "address": urlencode(Query(request.query_params)),
            "may_trigger": partial(may, user, TRIGGER),
            "may_unpause": partial(may, user, UNPAUSE),
        }


async def _turned_away(request: Request, error: Any) -> Response:
    """A page with a way to sign in, where a browser is signed out or lacks a right."""
    titles = {
        status.HTTP_401_UNAUTHORIZED: "Signed out",
        status.HTTP_403_FORBIDDEN: "No right to this page",
    }
    title = titles.get(error.status_code)
    if title is None or "text/html" not in request.headers.get("accept", ""):
        return await http_exception_handler(request, error)
    frame = _Console.frame(request, None, "")
    address = f"{frame['airflow']}api/v2/auth/login?{urlencode({'next': str(request.url)})}"
    values = {"error": f"Airflow says: {error.detail}", "title": title, "sign_in": address}
    return draw("error.html", {**frame, "address": ""}, values, error.status_code)


def _pipeline_of(dag_id: str) -> tuple[str, str]:
    """The pipeline of a DAG, and which of its DAGs it is; '' for the one that counts."""
    for suffix in (REPLAY_SUFFIX, LOSSES_SUFFIX, AUDIT_SUFFIX):
        if dag_id.endswith(suffix):
            return dag_id.removesuffix(suffix), suffix
    return dag_id, ""


def _answer(page: Page, query: Query, frame: Mapping[str, Any]) -> Response:
    """A page as HTML, or one of its tables as a file."""
    if wanted := query.get("export"):
        return export(page.table(wanted), query.get("as", "csv"), frame["pipeline"])
    return draw(page.template, frame, {"title": page.title, **page.values, "page": page})


def _surroundings(pipeline: str, engine: ErrorView | None) -> Surroundings:
    return Surroundings(paused=is_paused(pipeline), engine_error=engine)


def _failed(error: TallyError, frame: Mapping[str, Any]) -> Response:
    """A page that says what is wrong and what to do."""
    code = status.HTTP_503_SERVICE_UNAVAILABLE
    if isinstance(error, UnknownPipelineError | UnknownBatchError):
        code = status.HTTP_404_NOT_FOUND
    elif isinstance(error, UsageError) and not isinstance(error, ConfigError):
        code = status.HTTP_400_BAD_REQUEST
    return draw("error.html", frame, {"error": error, "title": "Error"}, code)
