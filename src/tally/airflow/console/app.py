"""The console's routes. Airflow mounts plugins' applications without any authentication.

Each route says whom it is for: a dependency of :mod:`tally.airflow.console.access`. All of them
only read. Answers are made in worker threads, so that waiting for MySQL does not block the API
server, and a bounded number at a time (:class:`tally.airflow.console.drawing.RequestLimit`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import FastAPI, HTTPException, Request, Response, status
from fastapi.exception_handlers import http_exception_handler
from fastapi.staticfiles import StaticFiles

from tally import errors
from tally.airflow.connections import connected_settings
from tally.airflow.console import line_pages, metrics, pages, steering_pages
from tally.airflow.console.access import (
    OF_DAG,
    OF_RUN,
    READ,
    READ_LINES,
    SIGNED_IN,
    TRIGGER,
    UNPAUSE,
    may,
)
from tally.airflow.console.drawing import RequestLimit, draw, export
from tally.airflow.console.page import Asked, Page, Query
from tally.airflow.console.runs import record_reader
from tally.context import console_context
from tally.errors import TallyError
from tally.lines.time_rule import UTC
from tally.mysql.connection import ConnectionPool
from tally.status.overview import PipelineSummary

STATIC: Final = Path(__file__).parent / "static"

Compose = Callable[[Asked], Page | Response]

PAGES: Final[Mapping[str, tuple[str, Compose]]] = {
    "": ("overview.html", pages.overview_page),
    "chart": ("", pages.chart_page),
    "minute": ("minute.html", pages.minute_page),
    "lines": ("lines.html", line_pages.lines_page),
    "record": ("record.html", line_pages.record_page),
    "kafka": ("kafka.html", pages.kafka_page),
    "partitions": ("partitions.html", pages.partitions_page),
    "strips": ("strips.html", pages.partitions_page),
    "batches": ("batches.html", pages.batches_page),
    "batches/{batch_id}": ("batch.html", pages.batch_page),
    "dead-letters": ("dead_letters.html", line_pages.dead_letters_page),
    "replay": ("replay.html", steering_pages.replay_page),
    "losses": ("losses.html", steering_pages.losses_page),
    "decide": ("decide.html", steering_pages.decide_page),
    "audit": ("audit.html", steering_pages.audit_page),
}
"""The template and the content of each page of a pipeline, by its address below it."""

ROUTES: Final[Mapping[str, tuple[list[Any], str, Compose]]] = {
    "/": (SIGNED_IN, "pipelines.html", pages.pipelines_page),
    "/summaries": (SIGNED_IN, "summaries.html", pages.pipelines_page),
    "/runbook": (SIGNED_IN, "runbook.html", pages.runbook_page),
    **{f"/pipelines/{{dag_id}}/{path}": (OF_DAG, *page) for path, page in PAGES.items()},
}

ASK_KAFKA: Final = frozenset(
    {"summaries.html", "kafka.html", "strips.html", "lines.html", "record.html", "decide.html"}
)
"""Those of the templates for which Kafka is asked."""

SHOW_LINES: Final = frozenset({"lines.html", "record.html", "dead_letters.html"})
"""Those with bytes of records, for users who may read them: Airflow's audit log says who did."""


def create_console(config: Path) -> FastAPI:
    """The console's application.

    Args:
        config: The configuration file; it is read again for each request.
    """
    app = FastAPI(title="Tally", docs_url=None, redoc_url=None, openapi_url=None)
    pool = ConnectionPool()
    answer = partial(_answer, config, pool)
    limit = RequestLimit(at_a_time=8, queued_max=64)
    # A Kafka that does not answer holds up what asks it, and no page of the ledger.
    of_kafka = RequestLimit(at_a_time=4, queued_max=64)
    # A request for metrics needs no sign-in, and takes no page's thread.
    of_metrics = RequestLimit(at_a_time=2, queued_max=8)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_exception_handler(HTTPException, _turned_away)
    app.add_exception_handler(TallyError, _failed)

    @app.get("/run", dependencies=OF_RUN)
    async def show_run(dag_id: str, run_id: str, request: Request, user: GetUserDep) -> Response:
        pipeline, _ = steering_pages.pipeline_of(dag_id)
        compose = partial(steering_pages.run_page, dag_id, run_id)
        return await limit.run(partial(answer, request, user, pipeline, "run.html", compose))

    @app.get("/metrics")
    async def show_metrics(request: Request) -> Response:
        return await of_metrics.run(partial(metrics.exposition, config, pool, request))

    async def show(template: str, compose: Compose, request: Request, user: GetUserDep) -> Response:
        pipeline = request.path_params.get("dag_id", "")
        its_limit = of_kafka if template in ASK_KAFKA else limit
        return await its_limit.run(partial(answer, request, user, pipeline, template, compose))

    for path, (right, template, compose) in ROUTES.items():
        app.get(path, dependencies=right)(partial(show, template, compose))
    return app


def _answer(
    config: Path,
    pool: ConnectionPool,
    request: Request,
    user: Any,
    pipeline: str,
    template: str,
    compose: Compose,
) -> Response:
    """A page as HTML, or one of its tables as a file, for a user who has the right to it."""
    request.state.frame = frame = _frame(request, user, pipeline)
    settings = connected_settings(config)
    readable = [name for name in settings.names if may(user, READ, name)]
    frame["pipelines"] = readable
    if "dag_id" in request.path_params:
        if pipeline in settings.disabled:
            summary = PipelineSummary.disabled(pipeline, settings.disabled[pipeline])
            return draw("disabled.html", Page(pipeline, {"summary": summary}), frame)
        if pipeline not in settings.pipelines:
            # Without the names of the others, to which the user may have no right.
            raise errors.UnknownPipelineError(
                f"no pipeline {pipeline!r} is configured", next_step="see the list of pipelines"
            )
        frame["zone"] = settings.pipelines[pipeline].time_zone or UTC
    asked = Asked(
        ctx=console_context(settings, pool),
        pipeline=pipeline,
        asks_kafka=template in ASK_KAFKA,
        readable=readable,
        query=frame["query"],
        path=Query(request.path_params),
        user=user,
        may_read_lines=frame["may_read_lines"](pipeline),
    )
    if asked.may_read_lines and template in SHOW_LINES:
        record_reader(pipeline, user, template.removesuffix(".html"), asked.query)
    page = compose(asked)
    if isinstance(page, Response):
        return page
    if wanted := asked.query.get("export"):
        return export(page.table(wanted), asked.query, pipeline)
    return draw(template, page, frame)


def _frame(request: Request, user: Any, pipeline: str) -> dict[str, Any]:
    """What every page has besides its own values."""
    route = request.scope["route"].path
    depth = route.count("/") - 1
    return {
        "root": "../" * depth,
        "airflow": "../" * (depth + 1),
        "pipeline": pipeline,
        "pipelines": [pipeline] if pipeline else [],
        "zone": UTC,
        "tab": route.split("/")[3] if route.count("/") > 2 else None,
        "here": route.lstrip("/").format(
            **{key: quote(value, safe="") for key, value in request.path_params.items()}
        ),
        "query": Query(request.query_params),
        "may_trigger": partial(may, user, TRIGGER),
        "may_unpause": partial(may, user, UNPAUSE),
        "may_read_lines": partial(may, user, READ_LINES),
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
    frame = {**_frame(request, None, ""), "query": {}}
    address = f"{frame['airflow']}api/v2/auth/login?{urlencode({'next': str(request.url)})}"
    values = {"error": f"Airflow says: {error.detail}", "sign_in": address}
    return draw("error.html", Page(title, values, code=error.status_code), frame)


async def _failed(request: Request, error: Exception) -> Response:
    """A page that says what is wrong and what to do."""
    code = status.HTTP_503_SERVICE_UNAVAILABLE
    if isinstance(error, errors.UnknownPipelineError | errors.UnknownBatchError):
        code = status.HTTP_404_NOT_FOUND
    elif isinstance(error, errors.UsageError) and not isinstance(error, errors.ConfigError):
        code = status.HTTP_400_BAD_REQUEST
    return draw("error.html", Page("Error", {"error": error}, code=code), request.state.frame)
