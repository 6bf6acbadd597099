"""The health of a pipeline: one notion, for the command line, the doctor, Airflow and JSON.

A pipeline has problems, each of them a failure or a warning, and is as healthy as the worst of
them. Until Kafka has answered it is a failure or unknown, and never better: what is blocked or lost
shows only there. What else cannot be known where the question is asked (whether a DAG is paused)
raises no problem there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from tally.aggregates.checks import find_format
from tally.config.pipeline import Pipeline
from tally.config.settings import CORRECT_THEM
from tally.formatting import plural
from tally.ledger.rules import Understood
from tally.status.state import PipelineState


class Health(StrEnum):
    """A failure keeps Tally from counting something; a warning does not, but needs a look.

    Of a pipeline it is unknown while only the ledger was asked.
    """

    OK = "ok"
    UNKNOWN = "unknown"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


class ProblemReason(StrEnum):
    """What is wrong with a pipeline."""

    DISABLED = "disabled"
    UNPREPARED = "unprepared"
    BLOCKED = "blocked"
    OPEN_LOSS = "open-loss"
    KAFKA_UNANSWERED = "kafka-unanswered"
    ENGINE_UNANSWERED = "engine-unanswered"
    LATE = "late"
    UNSHOWN = "unshown"
    LAG = "lag"
    MALFORMED = "malformed"
    NOTHING_MATCHED = "nothing-matched"
    RULES_ALTERNATE = "rules-alternate"
    LIMIT = "limit"
    PAUSED = "paused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Something that is wrong with a pipeline."""

    reason: ProblemReason
    """What it is; stable."""
    health: Health
    """Whether it is a failure or a warning."""
    detail: str
    """What was found, in one sentence."""
    next_step: str | None
    """What to do; null when nothing in particular can be done."""
    since: datetime | None = None
    """Since when it is known to be so; null where that is not kept."""
    entry: str | None = None
    """The entry of the runbook about it; null where that of its health says all."""


def worst_of(healths: Iterable[Health]) -> Health:
    """The worst of some healths; ok without any."""
    found = set(healths)
    return next((h for h in (Health.FAIL, Health.UNKNOWN, Health.WARN) if h in found), Health.OK)


def _fail(reason: ProblemReason, detail: str, next_step: str | None, **more: Any) -> Problem:
    return Problem(reason=reason, health=Health.FAIL, detail=detail, next_step=next_step, **more)


def _warn(reason: ProblemReason, detail: str, next_step: str | None) -> Problem:
    return Problem(reason=reason, health=Health.WARN, detail=detail, next_step=next_step)


def disabled_problem(mistakes: Sequence[str]) -> Problem:
    """What is wrong with a pipeline that is configured wrong."""
    return _fail(ProblemReason.DISABLED, "; ".join(mistakes), CORRECT_THEM)


def problems_of(found: PipelineState) -> Iterator[Problem]:
    """What is wrong with a pipeline, failures first."""
    for reason, error in (
        (ProblemReason.UNPREPARED, found.unprepared),
        (ProblemReason.KAFKA_UNANSWERED, found.kafka_error),
        (ProblemReason.ENGINE_UNANSWERED, found.surroundings.engine_error),
    ):
        if error is not None:
            yield _fail(reason, error.what, error.next_step, entry=error.code)
    yield from _waiting_for_a_decision(found)
    if found.unprepared is None:  # else that is why it waits
        yield from _late(found)
    yield from _unshown(found)
    yield from _warnings(found)


def _waiting_for_a_decision(found: PipelineState) -> Iterator[Problem]:
    lost = {str(loss.range.partition): loss.detected_at for loss in found.open_losses}
    for block in found.blocks:
        detail = f"{block.place} is not read: {block.detail}"
        yield _fail(
            ProblemReason.BLOCKED,
            detail,
            block.next_step,
            since=lost.get(block.place),
            entry=str(block.reason),
        )
    # A loss blocks its partition, but the blocks are known only when Kafka was asked.
    blocked = {block.place for block in found.blocks}
    for loss in found.open_losses:
        where = loss.range.partition
        if not blocked & {str(where), where.topic}:
            yield _fail(
                ProblemReason.OPEN_LOSS,
                f"{loss.range} was lost, which nobody has decided about",
                f"tally losses accept {found.pipeline.name} --reason '…'",
                since=loss.detected_at,
                entry="partitions-blocked",
            )


def _late(found: PipelineState) -> Iterator[Problem]:
    """Something has waited longer than two starts of the schedule and the patience of a batch.

    It is a warning before that, when not even a batch was planned of it: no task starts.
    """
    before, name = found.overdue_before, found.pipeline.name
    batch = min(found.open_batches, key=lambda one: one.planned_at, default=None)
    next_step = (
        f"see why the DAG {name} does not count (its pool, Airflow's scheduler), or: "
        f"tally run --pipeline {name} --all"
    )
    if batch is not None and batch.planned_at < before:
        since = f"{batch.planned_at:%Y-%m-%d %H:%M:%S} UTC"
        waits = f"batch {batch.batch_id} waits to be committed since {since}"
        yield _fail(ProblemReason.LATE, waits, next_step)
    elif found.overdue:
        if found.are_held_up:
            next_step = (
                "end the transaction that is open, behind which nothing can be read: kafka-"
                "transactions --bootstrap-server BROKER:9092 find-hanging shows those that hang"
            )
        offsets = plural(sum(found.overdue.values()), "offset")
        waits = f"not counted yet: {offsets} from before {before:%Y-%m-%d %H:%M:%S} UTC"
        yield _fail(ProblemReason.LATE, waits, next_step)
    elif found.due_offsets and batch is None:
        offsets, due = plural(found.due_offsets, "offset"), found.due_before
        waits = f"no batch is planned of {offsets} from before {due:%Y-%m-%d %H:%M:%S} UTC"
        ahead = " or with timestamps of the future" if found.are_ahead else ""
        yield _warn(ProblemReason.LATE, waits + ahead, next_step)


def _unshown(found: PipelineState) -> Iterator[Problem]:
    """Each run shows what it has committed, and each plan what the run before has not."""
    unshown = found.unshown
    since = unshown.since
    if since is not None and since < found.overdue_before:
        yield _fail(
            ProblemReason.UNSHOWN,
            f"readers do not see the lines of {plural(unshown.segments, 'segment')} "
            f"in {found.pipeline.rows_view}, the oldest committed {since:%Y-%m-%d %H:%M:%S} UTC",
            f"tally audit {found.pipeline.name} shows them, or says why it cannot",
        )


def malformed_problem(pipeline: Pipeline, read: Understood) -> Problem | None:
    """What is wrong when too much of what was read last could not be understood."""
    if read.ratio <= pipeline.max_malformed_ratio:
        return None
    if not read.lines:
        return _warn(
            ProblemReason.MALFORMED,
            f"none of {plural(read.records, 'record')} read last begins a "
            'line, so continuation_lines = "unmatched" has left all of them out',
            find_format(pipeline),
        )
    return _warn(
        ProblemReason.MALFORMED,
        f"{read.malformed:,} of the {read.lines:,} records that were read last are "
        f"malformed, a larger share than max_malformed_ratio = {pipeline.max_malformed_ratio:g}",
        f"tally dead-letters {pipeline.name}",
    )


def _warnings(found: PipelineState) -> Iterator[Problem]:
    pipeline, read, by = found.pipeline, found.understood, found.alternating
    for alert in found.alerts:
        if alert.is_firing:
            yield _warn(ProblemReason.LIMIT, alert.text, f"tally counts {pipeline.name} --complete")
    if (malformed := malformed_problem(pipeline, read)) is not None:
        yield malformed
    if not read.has_matched and (understood := read.lines - read.malformed):
        newest = ", ".join(f"{level} ({lines})" for level, lines in found.levels.items())
        yield _warn(
            ProblemReason.NOTHING_MATCHED,
            f"none of {plural(understood, 'line')} read last and understood is counted, "
            f"by the rules {pipeline.rules}"
            + (f"; the newest have the levels {newest}" if newest else ""),
            f"correct pipelines.{pipeline.name}.levels, or its filter; "
            f"tally format try {pipeline.topics[0]} shows what the lines have",
        )
    if by:
        yield _warn(
            ProblemReason.RULES_ALTERNATE,
            f"the latest batches are counted under two rules in turn, by {' and by '.join(by)}",
            "give both installations one configuration, or one of them a pipeline of "
            "its own; then replay what was counted under other rules",
        )
    limit, lag = pipeline.max_lag_offsets, found.lag_offsets
    if limit is not None and lag is not None and lag > limit:
        yield _warn(
            ProblemReason.LAG,
            f"{plural(lag, 'offset')} wait, more than max_lag_offsets = {limit}",
            f"tally run --pipeline {pipeline.name} --all",
        )
    if (found.surroundings.paused or {}).get(pipeline.name):
        yield _warn(
            ProblemReason.PAUSED,
            f"the DAG {pipeline.name} is paused in Airflow",
            f"tally airflow cli dags unpause {pipeline.name}",
        )
