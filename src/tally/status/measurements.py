"""What is measured of a pipeline, for the systems that watch it.

One list, which the endpoint for Prometheus and the tasks' metrics in Airflow share.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from tally.ledger.records import BatchRecord
from tally.status.health import Health, Problem, ProblemReason
from tally.status.status import StatusView, WaitingView


class Metric(StrEnum):
    """A figure that is measured of a pipeline; named as Prometheus wants it, without a prefix."""

    LEDGER_UP = "ledger_up", "Whether the ledger could be read: 1 or 0."
    KAFKA_UP = (
        "kafka_up",
        "1 if Kafka has answered, else 0; then the metrics that need Kafka are absent.",
    )
    HEALTH = "health", "Health: 0 ok, 1 a warning, 2 a failure."
    PROBLEM = "problem", "Whether the pipeline has a problem of this reason: 1 or 0."
    LAG = "lag_offsets", "Offsets that Kafka holds and that are not counted."
    PARTITION_LAG = "partition_lag_offsets", "Uncounted offsets of one partition."
    OLDEST = (
        "oldest_uncounted_timestamp_seconds",
        "Kafka's time of the oldest record that is not counted; absent when none waits.",
    )
    EXPIRY = (
        "retention_reaches_uncounted_timestamp_seconds",
        "When retention may delete the first record that is not counted; absent when none waits.",
    )
    RETENTION_LEFT = (
        "retention_left_ratio",
        "Smallest share of its retention that an uncounted record has left; absent without one.",
    )
    BLOCKED = "blocked_partitions", "Partitions or topics that are not read."
    OPEN_LOSSES = "open_losses", "Lost ranges that wait for a decision."
    OPEN_LOSS_OFFSETS = "open_loss_offsets", "Offsets in open losses."
    OPEN_BATCHES = "open_batches", "Batches that are planned and not committed."
    COUNTED = (
        "counted_offsets_total",
        "Offsets of a partition between its start offset and its committed offset.",
    )
    LAST_COMMIT = "last_commit_timestamp_seconds", "When the last minute batch was committed."
    BATCH_STEP = "last_batch_step_seconds", "Seconds of the last minute batch, by step."
    BATCH_RECORDS = "last_batch_records", "Records that the last minute batch has read."
    BATCH_LINES = "last_batch_lines", "Lines that the last minute batch has counted."
    BATCH_DEAD_LETTERS = (
        "last_batch_dead_letters",
        "Records that the last minute batch could not understand.",
    )
    BATCH_CONTINUATIONS = (
        "last_batch_continuations",
        "Records of the last minute batch that begin no line and were left out.",
    )
    RATE = "records_per_second", "Records that were committed per second in the last 15 minutes."
    RECENT_RECORDS = (
        "recent_records",
        "Minute batches' records of the last 20 plans, by today's rules.",
    )
    RECENT_DEAD_LETTERS = (
        "recent_dead_letters",
        "Records of recent_records that could not be understood.",
    )
    RECENT_CONTINUATIONS = (
        "recent_continuations",
        "Records of recent_records that begin no line and were left out.",
    )
    AUDIT_HOLDS = "audit_holds", "Whether the last audit has found the counts right: 1 or 0."
    AUDIT_VIOLATIONS = "audit_violations", "Violations that the last audit has found."
    AUDIT_ENDED = "audit_timestamp_seconds", "When the last audit ended."

    help: str

    def __new__(cls, name: str, text: str) -> "Metric":
        """A member whose value is its name; ``text`` says what it is."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.help = text
        return member

    @property
    def is_counter(self) -> bool:
        """Whether it only grows."""
        return self.value.endswith("_total")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure and what it is of."""

    metric: Metric
    """What is measured."""
    value: float
    """The figure, in the unit of the metric's name."""
    labels: tuple[tuple[str, str], ...] = ()
    """Names and values of what it is of, besides the pipeline."""


_HEALTH: Final = {Health.OK: 0, Health.WARN: 1, Health.FAIL: 2}


def of_waiting(view: WaitingView) -> Iterator[Measurement]:
    """What is measured of a pipeline where Kafka was asked, too."""
    yield from of_status(view.status)
    if view.oldest_at is not None:
        yield _at(Metric.OLDEST, view.oldest_at)
    expires = [one.expires_at for one in view.oldest.values() if one.expires_at is not None]
    if expires:
        yield _at(Metric.EXPIRY, min(expires))
    if (left := view.retention_left) is not None:
        yield Measurement(Metric.RETENTION_LEFT, left)


def of_status(view: StatusView) -> Iterator[Measurement]:
    """What is measured of a pipeline."""
    yield Measurement(Metric.LEDGER_UP, 1)
    yield Measurement(Metric.KAFKA_UP, view.kafka_answered)
    yield from of_problems(view.health, view.problems)
    if view.lag_offsets is not None:
        yield Measurement(Metric.LAG, view.lag_offsets)
        yield Measurement(Metric.BLOCKED, len(view.blocks))
    for p in view.partitions:
        labels = (("topic", p.partition.topic), ("partition", str(p.partition.partition)))
        if p.lag_offsets is not None:
            yield Measurement(Metric.PARTITION_LAG, p.lag_offsets, labels=labels)
        if p.next_offset is not None and p.start_offset is not None:
            passed = p.next_offset - p.start_offset
            yield Measurement(Metric.COUNTED, passed, labels=labels)
    yield Measurement(Metric.OPEN_LOSSES, len(view.open_losses))
    yield Measurement(
        Metric.OPEN_LOSS_OFFSETS, sum(loss.range.offsets for loss in view.open_losses)
    )
    yield Measurement(Metric.OPEN_BATCHES, len(view.open_batches))
    yield Measurement(Metric.RATE, view.records_per_second)
    yield Measurement(Metric.RECENT_RECORDS, view.understood.records)
    yield Measurement(Metric.RECENT_DEAD_LETTERS, view.understood.malformed)
    yield Measurement(Metric.RECENT_CONTINUATIONS, view.understood.continuations)
    if view.last_committed_batch is not None:
        yield from of_batch(view.last_committed_batch)


def of_batch(batch: BatchRecord) -> Iterator[Measurement]:
    """What is measured of a committed batch."""
    if batch.committed_at is not None:
        yield _at(Metric.LAST_COMMIT, batch.committed_at)
    for step, seconds in batch.steps.items():
        yield Measurement(Metric.BATCH_STEP, seconds, labels=(("step", step),))
    yield Measurement(Metric.BATCH_RECORDS, batch.records or 0)
    yield Measurement(Metric.BATCH_LINES, batch.matched or 0)
    yield Measurement(Metric.BATCH_DEAD_LETTERS, batch.malformed or 0)
    if batch.continuations is not None:
        yield Measurement(Metric.BATCH_CONTINUATIONS, batch.continuations)


def of_problems(health: Health, problems: tuple[Problem, ...]) -> Iterator[Measurement]:
    """The health where Kafka was asked, and of each reason whether there is a problem of it."""
    yield Measurement(Metric.HEALTH, _HEALTH[health])
    found = {problem.reason for problem in problems}
    for reason in ProblemReason:
        labels = (("reason", str(reason)),)
        yield Measurement(Metric.PROBLEM, reason in found, labels=labels)


def of_audit(holds: bool, violations: int, ended_at: datetime) -> Iterator[Measurement]:
    """What is measured of an audit: whether the counts are right, violations, and its end."""
    yield Measurement(Metric.AUDIT_HOLDS, holds)
    yield Measurement(Metric.AUDIT_VIOLATIONS, violations)
    yield _at(Metric.AUDIT_ENDED, ended_at)


def _at(metric: Metric, moment: datetime) -> Measurement:
    return Measurement(metric, moment.timestamp())
