"""Metrics and traces of the tasks, sent where Airflow's own go: OpenTelemetry or StatsD.

For running tasks only. Airflow's sections ``[metrics]`` and ``[traces]`` say whether, and where;
names and labels of metrics are those of the endpoint for Prometheus. What cannot be measured keeps
no task from its end.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from typing import Final

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from opentelemetry import trace

from tally.context import Context, with_kafka_timeout
from tally.counting.outcomes import BatchOutcome
from tally.ledger.records import BatchRecord
from tally.status.health import ProblemReason
from tally.status.measurements import Measurement, of_audit, of_waiting
from tally.status.status import Statuses

log = logging.getLogger(__name__)

PREFIX: Final = "tally."
PATIENCE_S: Final = 2
"""Seconds that each question to Kafka may take: the count waits for it."""

# A gauge that was pushed stays as it was. What waits is absent when nothing does, and so is a value
# that is not among the largest any more; and a task that reaches no server sends nothing, so that
# it could only ever say that all of them answer.
_SCRAPED_ALONE: Final = frozenset(
    {
        "complete_minute_label_lines",
        "oldest_uncounted_timestamp_seconds",
        "retention_reaches_uncounted_timestamp_seconds",
        "retention_left_ratio",
        "ledger_up",
        "kafka_up",
    }
)
# What only the console can know.
_UNKNOWN_REASONS: Final = frozenset(
    {ProblemReason.PAUSED, ProblemReason.KAFKA_UNANSWERED, ProblemReason.ENGINE_UNANSWERED}
)

_BACKENDS: Final = ("otel_on", "statsd_on", "statsd_datadog_enabled")


def send_state(ctx: Context, pipeline: str) -> None:
    """Send lag, age, losses and the last batch, where Airflow sends metrics at all."""
    with _logging_errors(pipeline):
        if not any(conf.getboolean("metrics", backend, fallback=False) for backend in _BACKENDS):
            return
        view = Statuses(ctx=with_kafka_timeout(ctx, PATIENCE_S)).waiting(pipeline)
        _send(pipeline, of_waiting(view))
        if view.status.kafka_answered and view.times_error is None:
            oldest = view.oldest_at
            age = 0.0 if oldest is None else (view.asked_at - oldest).total_seconds()
            tags = {"pipeline": pipeline}
            stats.gauge(f"{PREFIX}oldest_uncounted_age_seconds", max(0.0, age), tags=tags)


def send_batches(outcome: BatchOutcome) -> None:
    """Send what was committed."""
    tags = {"pipeline": outcome.pipeline}
    with _logging_errors(outcome.pipeline):
        for name, count in (
            ("records", outcome.total.records),
            ("lines", outcome.total.matched),
            ("dead_letters", outcome.total.malformed),
        ):
            stats.incr(f"{PREFIX}{name}", count, tags=tags)
        for step, seconds in outcome.steps.items():
            stats.timing(f"{PREFIX}batch_step_ms", seconds * 1000, tags={**tags, "step": step})
        for batch in outcome.records:
            _trace(batch)


def _trace(batch: BatchRecord) -> None:
    """A span for the batch below that of Airflow's task, and one for each of its steps.

    The times are the ledger's, so that a step has its span wherever it ran.
    """
    moments = [(name, int(at.timestamp() * 1e9)) for name, at in batch.moments.items()]
    tracer = trace.get_tracer("tally")
    attributes: dict[str, str | int] = {"pipeline": batch.pipeline, "batch_id": batch.batch_id}
    attributes |= {"attempt": batch.attempt, "records": batch.records or 0}
    whole = tracer.start_span(
        f"{PREFIX}batch",
        start_time=moments[0][1],
        attributes={f"{PREFIX}{name}": value for name, value in attributes.items()},
    )
    below = trace.set_span_in_context(whole)
    for (_, began), (step, ended) in pairwise(moments):
        tracer.start_span(f"{PREFIX}{step}", below, start_time=began).end(ended)
    whole.end(moments[-1][1])


def send_audit(pipeline: str, holds: bool, violations: int, ended_at: datetime) -> None:
    """Send what an audit has found."""
    with _logging_errors(pipeline):
        _send(pipeline, of_audit(holds, violations, ended_at))


@contextmanager
def _logging_errors(pipeline: str) -> Iterator[None]:
    """Log what goes wrong in the block: the task's own work is done, or goes on."""
    try:
        yield
    except Exception:
        log.exception("not all metrics of %s were sent", pipeline)


def _send(pipeline: str, found: Iterable[Measurement]) -> None:
    for one in found:
        labels = dict(one.labels)
        if one.metric in _SCRAPED_ALONE or labels.get("reason") in _UNKNOWN_REASONS:
            continue
        tags = {"pipeline": pipeline, **labels}
        # A bool is a number to Python, and to no exporter.
        stats.gauge(f"{PREFIX}{one.metric}", float(one.value), tags=tags)
