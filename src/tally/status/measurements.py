"""What is measured of a pipeline, for the systems that watch it.

One list, which the endpoint for Prometheus and the tasks' metrics in Airflow share.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.ledger.records import BatchRecord
from tally.status.health import Health, Problem, ProblemReason
from tally.status.status import StatusView, WaitingView

METRICS: Final = {
    "ledger_up": "Whether the ledger could be read: 1 or 0.",
    "kafka_up": "1 if Kafka has answered, else 0; then the metrics that need Kafka are absent.",
    "health": "Health: 0 ok, 1 a warning, 2 a failure.",
    "problem": "Whether the pipeline has a problem of this reason: 1 or 0.",
    "lag_offsets": "Offsets that Kafka holds and that are not counted.",
    "partition_lag_offsets": "Uncounted offsets of one partition.",
    "oldest_uncounted_timestamp_seconds": (
        "Kafka's time of the oldest record that is not counted; absent when none waits."
    ),
    "retention_reaches_uncounted_timestamp_seconds": (
        "When retention may delete the first record that is not counted; absent when none waits."
    ),
    "retention_left_ratio": (
        "Smallest share of its retention that an uncounted record has left; absent without one."
    ),
    "blocked_partitions": "Partitions or topics that are not read.",
    "counted_through_timestamp_seconds": (
        "Everything that Kafka had then is counted; absent while unknown for a partition."
    ),
    "complete_minute_lines": "Lines of the last complete minute.",
    "complete_minute_label_lines": (
        "Lines of the last complete minute that have a value of a label: its ten largest values."
    ),
    "alert": "1 while complete minutes break a limit, by rule; 0 after that.",
    "open_losses": "Lost ranges that wait for a decision.",
    "open_loss_offsets": "Offsets in open losses.",
    "open_batches": "Batches that are planned and not committed.",
    "counted_offsets_total": (
        "Offsets of a partition between its start offset and its committed offset."
    ),
    "last_commit_timestamp_seconds": "When the last minute batch was committed.",
    "last_batch_step_seconds": "Seconds of the last minute batch, by step.",
    "last_batch_records": "Records that the last minute batch has read.",
    "last_batch_lines": "Lines that the last minute batch has counted.",
    "last_batch_dead_letters": "Records that the last minute batch could not understand.",
    "last_batch_continuations": (
        "Records of the last minute batch that begin no line and were left out."
    ),
    "records_per_second": "Records that were committed per second in the last 15 minutes.",
    "recent_records": "Minute batches' records of the last 20 plans, by today's rules.",
    "recent_dead_letters": "Records of recent_records that could not be understood.",
    "recent_continuations": "Records of recent_records that begin no line and were left out.",
    "audit_holds": "Whether the last audit has found the counts right: 1 or 0.",
    "audit_violations": "Violations that the last audit has found.",
    "audit_timestamp_seconds": "When the last audit ended.",
}
"""What each figure of a pipeline says, by its name as Prometheus wants it, without a prefix.

One that ends with ``_total`` only grows.
"""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure and what it is of."""

    metric: str
    """What is measured, one of :data:`METRICS`."""
    value: float
    """The figure, in the unit of the metric's name."""
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values of what it is of, besides the pipeline."""


_HEALTH: Final = {Health.OK: 0, Health.WARN: 1, Health.FAIL: 2}


def of_waiting(view: WaitingView) -> Iterator[Measurement]:
    """What is measured of a pipeline where Kafka was asked, too."""
    yield from of_status(view.status)
    if view.oldest_at is not None:
        yield _at("oldest_uncounted_timestamp_seconds", view.oldest_at)
    expires = [one.expires_at for one in view.oldest.values() if one.expires_at is not None]
    if expires:
        yield _at("retention_reaches_uncounted_timestamp_seconds", min(expires))
    if (left := view.retention_left) is not None:
        yield Measurement("retention_left_ratio", left)


def of_status(view: StatusView) -> Iterator[Measurement]:
    """What is measured of a pipeline."""
    yield Measurement("ledger_up", 1)
    yield Measurement("kafka_up", view.kafka_answered)
    yield from of_problems(view.health, view.problems)
    if view.lag_offsets is not None:
        yield Measurement("lag_offsets", view.lag_offsets)
        yield Measurement("blocked_partitions", len(view.blocks))
    for p in view.partitions:
        labels = (("topic", p.partition.topic), ("partition", str(p.partition.partition)))
        if p.lag_offsets is not None:
            yield Measurement("partition_lag_offsets", p.lag_offsets, labels=labels)
        if p.next_offset is not None and p.start_offset is not None:
            passed = p.next_offset - p.start_offset
            yield Measurement("counted_offsets_total", passed, labels=labels)
    yield from _of_minutes(view)
    yield Measurement("open_losses", len(view.open_losses))
    yield Measurement("open_loss_offsets", sum(loss.range.offsets for loss in view.open_losses))
    yield Measurement("open_batches", len(view.open_batches))
    yield Measurement("records_per_second", view.records_per_second)
    yield Measurement("recent_records", view.understood.records)
    yield Measurement("recent_dead_letters", view.understood.malformed)
    yield Measurement("recent_continuations", view.understood.continuations)
    if view.last_committed_batch is not None:
        yield from of_batch(view.last_committed_batch)


def _of_minutes(view: StatusView) -> Iterator[Measurement]:
    if view.counted_through is not None:
        yield _at("counted_through_timestamp_seconds", view.counted_through)
    if view.complete_minute is not None:
        yield Measurement("complete_minute_lines", view.complete_minute.log_count)
        for label, values in view.complete_minute.largest.items():
            for value, lines in values.items():
                labels = (("label", label), ("value", value))
                yield Measurement("complete_minute_label_lines", lines, labels=labels)
    for alert in view.alerts:
        yield Measurement("alert", alert.is_firing, labels=(("rule", alert.rule),))


def of_batch(batch: BatchRecord) -> Iterator[Measurement]:
    """What is measured of a committed batch."""
    if batch.committed_at is not None:
        yield _at("last_commit_timestamp_seconds", batch.committed_at)
    for step, seconds in batch.steps.items():
        yield Measurement("last_batch_step_seconds", seconds, labels=(("step", step),))
    yield Measurement("last_batch_records", batch.records or 0)
    yield Measurement("last_batch_lines", batch.matched or 0)
    yield Measurement("last_batch_dead_letters", batch.malformed or 0)
    if batch.continuations is not None:
        yield Measurement("last_batch_continuations", batch.continuations)


def of_problems(health: Health, problems: tuple[Problem, ...]) -> Iterator[Measurement]:
    """The health where Kafka was asked, and of each reason whether there is a problem of it."""
    yield Measurement("health", _HEALTH[health])
    found = {problem.reason for problem in problems}
    for reason in ProblemReason:
        labels = (("reason", str(reason)),)
        yield Measurement("problem", reason in found, labels=labels)


def of_audit(holds: bool, violations: int, ended_at: datetime) -> Iterator[Measurement]:
    """What is measured of an audit: whether the counts are right, violations, and its end."""
    yield Measurement("audit_holds", holds)
    yield Measurement("audit_violations", violations)
    yield _at("audit_timestamp_seconds", ended_at)


def _at(metric: str, moment: datetime) -> Measurement:
    return Measurement(metric, moment.timestamp())
