"""Metrics of the tasks, sent where Airflow's own metrics go: OpenTelemetry or StatsD.

For running tasks only. Airflow's section ``[metrics]`` says whether, where and under which prefix;
the names and labels are those of the endpoint for Prometheus. What cannot be measured keeps no task
from its end.
"""

import logging
from collections.abc import Iterable
from typing import Final

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from tally.app.context import impatient
from tally.app.health import ProblemReason
from tally.app.measurements import AuditOutcome, Measurement, Metric, of_audit, of_waiting
from tally.app.outcomes import BatchOutcome
from tally.app.waiting import waiting
from tally.pipeline.context import Context

log = logging.getLogger(__name__)

PREFIX: Final = "tally."
PATIENCE_S: Final = 2
"""Seconds that each question to Kafka may take: the count waits for it."""

# What waits is absent when nothing does, and a gauge that was pushed once stays as it was.
_SCRAPED_ALONE: Final = frozenset({Metric.OLDEST, Metric.EXPIRY})

# The run of a paused DAG is somebody's own, and says nothing of the schedule.
_UNKNOWN_TO_TASKS: Final = ("reason", str(ProblemReason.PAUSED))

_BACKENDS: Final = ("otel_on", "statsd_on", "statsd_datadog_enabled")


def send_state(ctx: Context, pipeline: str) -> None:
    """Send lag, age, losses and the last batch, where Airflow sends metrics at all."""
    if not any(conf.getboolean("metrics", backend, fallback=False) for backend in _BACKENDS):
        return
    try:
        view = waiting(impatient(ctx, PATIENCE_S), pipeline)
        _send(pipeline, of_waiting(view))
        if view.status.kafka_answered and view.times_error is None:
            oldest = view.oldest_at
            age = 0.0 if oldest is None else (view.asked_at - oldest).total_seconds()
            tags = {"pipeline": pipeline}
            stats.gauge(f"{PREFIX}oldest_uncounted_age_seconds", max(0.0, age), tags=tags)
    except Exception:  # the batch is planned: what is wrong with its metrics is only told
        log.exception("not all metrics of %s were sent", pipeline)


def send_batches(outcome: BatchOutcome) -> None:
    """Send what was committed."""
    tags = {"pipeline": outcome.pipeline}
    for name, count in (
        ("records", outcome.records),
        ("lines", outcome.matched),
        ("dead_letters", outcome.malformed),
    ):
        stats.incr(f"{PREFIX}{name}", count, tags=tags)
    for step, seconds in outcome.steps.items():
        stats.timing(f"{PREFIX}batch_step_ms", seconds * 1000, tags={**tags, "step": step})


def send_audit(pipeline: str, outcome: AuditOutcome) -> None:
    """Send what an audit has found."""
    _send(pipeline, of_audit(outcome))


def _send(pipeline: str, found: Iterable[Measurement]) -> None:
    for one in found:
        if one.metric in _SCRAPED_ALONE or _UNKNOWN_TO_TASKS in one.labels:
            continue
        tags = {"pipeline": pipeline, **dict(one.labels)}
        # A bool is a number to Python, and to no exporter.
        stats.gauge(f"{PREFIX}{one.metric}", float(one.value), tags=tags)
