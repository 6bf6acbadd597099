"""The endpoint for Prometheus: off by default, and only for clients with the token.

A scraper cannot sign in to Airflow. It gets figures of all pipelines, and no line of a log.
"""

import hmac
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from fastapi import Request, Response, status
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from tally.airflow.connections import connected_settings
from tally.airflow.console.runs import audits, surroundings_now
from tally.airflow.policies import AUDIT_SUFFIX
from tally.context import Context, console_context
from tally.each import is_down
from tally.errors import ConfigError, TallyError
from tally.mysql.connection import ConnectionPool
from tally.status import measurements
from tally.status.measurements import METRICS, Measurement
from tally.status.overview import PipelineSummary
from tally.status.status import Statuses, WaitingView

log = logging.getLogger(__name__)

PREFIX: Final = "tally_"
TOKEN_MIN: Final = 16
"""Characters of a token at least."""


def exposition(config: Path, pool: ConnectionPool, request: Request) -> Response:
    """All pipelines' figures for clients with the token, in the format that a scraper accepts.

    Args:
        config: The configuration file.
        pool: Where connections to the ledger come from.
        request: The scraper's.
    """
    try:
        settings = connected_settings(config)
        if (path := settings.console.metrics_token_file) is None:
            return Response(status_code=status.HTTP_404_NOT_FOUND)
        given = request.headers.get("authorization", "")
        # Compared as bytes: a header may hold what is not ASCII.
        if not hmac.compare_digest(given.encode(), f"Bearer {_token(path)}".encode()):
            wanted = {"WWW-Authenticate": "Bearer"}
            return Response(status_code=status.HTTP_401_UNAUTHORIZED, headers=wanted)
        pipelines = _Pipelines(console_context(settings, pool))
        encode, media_type = choose_encoder(request.headers.get("accept") or "")
        return Response(encode(pipelines), headers={"Content-Type": media_type})
    except TallyError as error:
        log.error("no metrics: %s", error)  # noqa: TRY400 - no bug
        return Response(status_code=status.HTTP_503_SERVICE_UNAVAILABLE)


def _token(path: Path) -> str:
    """The token of the file.

    Raises:
        ConfigError: The file cannot be read, or holds none.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
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


class _Pipelines(Collector):
    """The figures of all pipelines for one scrape; a server that is down is asked only once."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._statuses = Statuses(ctx=ctx, surroundings=surroundings_now(ctx.settings))
        self._ledger_down: TallyError | None = None

    def collect(self) -> Iterable[Family]:
        """A family of each metric that there is a figure of."""
        families: dict[str, Family] = {}
        for pipeline in self._ctx.settings.names:
            for one in self._of(pipeline):
                labels = {"pipeline": pipeline, **dict(one.labels)}
                is_counter = one.metric.endswith("_total")
                make = CounterMetricFamily if is_counter else GaugeMetricFamily
                family = families.setdefault(
                    one.metric, make(PREFIX + one.metric, METRICS[one.metric], labels=list(labels))
                )
                family.add_metric(list(labels.values()), one.value)  # type: ignore[attr-defined]
        return families.values()

    def _of(self, pipeline: str) -> Iterator[Measurement]:
        settings = self._ctx.settings
        if pipeline in settings.disabled:
            summary = PipelineSummary.disabled(pipeline, settings.disabled[pipeline])
            yield from measurements.of_problems(summary.health, summary.problems)
            return
        for audit in audits(pipeline + AUDIT_SUFFIX, limit=1, reported=True):
            if audit.ended_at is not None:
                holds, violations = bool(audit.report["holds"]), int(audit.report["findings"])
                yield from measurements.of_audit(holds, violations, audit.ended_at)
        try:
            view = self._read(pipeline)
        except TallyError as error:
            log.warning("no metrics of %s: %s", pipeline, error)
            if is_down(error):
                self._ledger_down = error
            yield Measurement("ledger_up", 0)
            return
        yield from measurements.of_waiting(view)

    def _read(self, pipeline: str) -> WaitingView:
        if self._ledger_down is not None:
            raise self._ledger_down
        view = self._statuses.waiting(pipeline)
        for unknown in (view.status.kafka_error, view.times_error):
            if unknown is not None:
                log.warning("not all metrics of %s: %s", pipeline, unknown.what)
        return view
