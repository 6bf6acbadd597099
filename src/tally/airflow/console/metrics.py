"""The endpoint for Prometheus: off by default, and for whoever has the token.

A scraper cannot sign in to Airflow. It gets figures of all pipelines, and no line of a log.
"""

import hmac
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fastapi import Request, Response, status
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from tally.airflow.console.runs import latest_report
from tally.app.each import is_down
from tally.app.measurements import (
    AuditOutcome,
    Measurement,
    Metric,
    of_audit,
    of_problems,
    of_waiting,
)
from tally.app.overview import PipelineSummary
from tally.app.surroundings import Surroundings
from tally.app.waiting import WaitingView, waiting
from tally.config.servers import ConsoleSettings
from tally.context import Context
from tally.errors import ConfigError, TallyError
from tally.views import ErrorView

log = logging.getLogger(__name__)

PREFIX: Final = "tally_"
TOKEN_MIN: Final = 16
"""Characters of a token at least."""

_BEARER: Final = "Bearer "


def refused(console: ConsoleSettings, request: Request) -> Response | None:
    """Why a scraper gets nothing; None when it has the token.

    Raises:
        ConfigError: The file of the token cannot be read, or holds none.
    """
    if console.metrics_token_file is None:
        return Response(status_code=status.HTTP_404_NOT_FOUND)
    token = _token(console)
    given = request.headers.get("authorization", "")
    # Compared as bytes: a header may hold what is not ASCII.
    if hmac.compare_digest(given.encode(), (_BEARER + token).encode()):
        return None
    return Response(
        status_code=status.HTTP_401_UNAUTHORIZED, headers={"WWW-Authenticate": "Bearer"}
    )


def _token(console: ConsoleSettings) -> str:
    path = console.metrics_token_file
    try:
        token = path.read_text(encoding="utf-8").strip() if path else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the token of console.metrics_token_file cannot be read: {error}",
            next_step="write a token into that file, readable for the API server's user alone",
        ) from error
    if len(token) < TOKEN_MIN:
        raise ConfigError(
            f"{path} holds no token of at least {TOKEN_MIN} characters",
            next_step=f"openssl rand -hex 32 > {path}",
        )
    return token


def exposition(
    ctx: Context, surroundings: Callable[[str], Surroundings], accept: str | None
) -> Response:
    """All pipelines' figures, in the format that a scraper accepts.

    Args:
        ctx: Where it reads; with bounded times.
        surroundings: What is known of Airflow and of the engine, by pipeline.
        accept: The request's header of that name.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Pipelines(ctx, surroundings))
    encode, media_type = choose_encoder(accept or "")
    return Response(encode(registry), headers={"Content-Type": media_type})


class _Pipelines(Collector):
    """The figures of all pipelines, newly read for each scrape."""

    def __init__(self, ctx: Context, surroundings: Callable[[str], Surroundings]) -> None:
        self._ctx = ctx
        self._surroundings = surroundings

    def collect(self) -> Iterable[Family]:
        """A family of each metric that there is a figure of."""
        families: dict[Metric, Family] = {}
        for pipeline, found in self._measured().items():
            for one in found:
                names = ["pipeline", *(name for name, _ in one.labels)]
                make = CounterMetricFamily if one.metric.is_counter else GaugeMetricFamily
                family = families.setdefault(
                    one.metric, make(PREFIX + one.metric, one.metric.help, labels=names)
                )
                values = [pipeline, *(value for _, value in one.labels)]
                family.add_metric(values, one.value)  # type: ignore[attr-defined]
        return families.values()

    def _measured(self) -> Mapping[str, list[Measurement]]:
        down = _Down()
        return {name: list(self._of(name, down)) for name in self._ctx.settings.names}

    def _of(self, pipeline: str, down: "_Down") -> Iterator[Measurement]:
        """One pipeline's figures; a server that is down is asked only once for all of them."""
        settings = self._ctx.settings
        if pipeline in settings.disabled:
            summary = PipelineSummary.disabled(pipeline, settings.disabled[pipeline])
            yield from of_problems(summary.health, summary.problems)
            return
        yield from _audited(pipeline)
        try:
            view = self._read(pipeline, down)
        except TallyError as error:
            log.warning("no metrics of %s: %s", pipeline, error)
            down.ledger.append(error)
            yield Measurement(Metric.LEDGER_UP, 0)
            return
        yield from of_waiting(view)

    def _read(self, pipeline: str, down: "_Down") -> WaitingView:
        if (error := next(filter(is_down, down.ledger), None)) is not None:
            raise error
        kafka_error = next((ErrorView.of(error) for error in down.kafka if is_down(error)), None)
        view = waiting(
            self._ctx,
            pipeline,
            surroundings=self._surroundings(pipeline),
            kafka_error=kafka_error,
            on_unanswered=down.kafka.append,
        )
        for unknown in (view.status.kafka_error, view.times_error):
            if unknown is not None:
                log.warning("not all metrics of %s: %s", pipeline, unknown.what)
        return view


@dataclass(kw_only=True, slots=True)
class _Down:
    """The errors of servers during a scrape."""

    ledger: list[TallyError] = field(default_factory=list)
    kafka: list[TallyError] = field(default_factory=list)


def _audited(pipeline: str) -> Iterator[Measurement]:
    """The latest audit that has ended with a report."""
    run = latest_report(pipeline)
    if run is not None and run.report is not None and run.ended_at is not None:
        outcome = AuditOutcome(
            holds=bool(run.report["holds"]),
            violations=int(run.report["findings"]),
            ended_at=run.ended_at,
        )
        yield from of_audit(outcome)
