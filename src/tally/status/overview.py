"""All pipelines of the configuration, a line each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from tally.config.settings import CORRECT_THEM
from tally.context import Context
from tally.each import is_down
from tally.errors import TallyError
from tally.status.health import Health, Problem, ProblemReason, worst_of
from tally.status.status import StatusView, status
from tally.status.surroundings import UNKNOWN, Surroundings
from tally.views import ErrorView


@dataclass(frozen=True, kw_only=True, slots=True)
class Statuses:
    """The status of one pipeline after another; a Kafka that is down is asked only once."""

    ctx: Context
    """What is needed from outside."""
    ask_kafka: bool = True
    """Whether Kafka is asked as well."""
    errors: list[TallyError] = field(default_factory=list)
    """Kafka's errors so far."""

    def of(self, pipeline: str, surroundings: Surroundings) -> StatusView:
        """The status of a pipeline.

        Raises:
            TallyError: As :func:`tally.status.status.status`.
        """
        down = next((ErrorView.of(error) for error in self.errors if is_down(error)), None)
        return status(
            self.ctx,
            pipeline,
            ask_kafka=self.ask_kafka,
            kafka_error=down,
            surroundings=surroundings,
            on_unanswered=self.errors.append,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineSummary:
    """A pipeline in one line."""

    pipeline: str
    """Its name."""
    topics: tuple[str, ...] = ()
    """The topics that it reads; empty when it is disabled."""
    result_table: str | None = None
    """The table it counts into; null when it is disabled."""
    health: Health
    """Its health: that of the worst problem, or ``unknown`` until Kafka has answered."""
    problems: tuple[Problem, ...]
    """What is wrong, failures first; empty when nothing is."""
    lag_offsets: int | None = None
    """Offsets that Kafka holds and that are not counted; null when that is not known."""
    last_committed_at: datetime | None = None
    """When its last minute batch was committed; null before the first one."""

    @classmethod
    def of(cls, view: StatusView, topics: Sequence[str]) -> Self:
        """The summary of a status."""
        last = view.last_committed_batch
        return cls(
            pipeline=view.pipeline,
            topics=tuple(topics),
            result_table=view.result_table,
            health=view.health,
            problems=view.problems,
            lag_offsets=view.lag_offsets,
            last_committed_at=last.committed_at if last else None,
        )

    @classmethod
    def disabled(cls, name: str, mistakes: Sequence[str]) -> Self:
        """The summary of a pipeline that is configured wrong."""
        problem = Problem(
            reason=ProblemReason.DISABLED,
            health=Health.FAIL,
            detail="; ".join(mistakes),
            next_step=CORRECT_THEM,
        )
        return cls(pipeline=name, health=Health.FAIL, problems=(problem,))


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelinesView:
    """All configured pipelines."""

    health: Health
    """The worst health of them."""
    pipelines: tuple[PipelineSummary, ...]
    """The pipelines, by name."""


def overview(
    ctx: Context,
    *,
    names: Sequence[str] | None = None,
    ask_kafka: bool = True,
    surroundings: Mapping[str, Surroundings] | None = None,
    on_unanswered: Callable[[TallyError], None] = lambda _: None,
) -> PipelinesView:
    """Pipelines of the configuration, the disabled ones too.

    Args:
        ctx: What is needed from outside.
        names: Which; None for all.
        ask_kafka: Whether Kafka is asked as well; if not, only the ledger's side is known.
        surroundings: What is known of Airflow and of the engine, by pipeline; None for nothing.
        on_unanswered: Called with the first error of Kafka; when it does not answer at all, it is
            asked only once.

    Raises:
        MySQLUnavailableError: The server did not answer.
        OperatorError: The ledger is not migrated or access is denied.
    """
    statuses = Statuses(ctx=ctx, ask_kafka=ask_kafka)
    found: list[PipelineSummary] = []
    for name in ctx.settings.names if names is None else names:
        if name in ctx.settings.disabled:
            found.append(PipelineSummary.disabled(name, ctx.settings.disabled[name]))
            continue
        view = statuses.of(name, (surroundings or {}).get(name, UNKNOWN))
        found.append(PipelineSummary.of(view, ctx.settings.pipeline(name).topics))
    if statuses.errors:
        on_unanswered(statuses.errors[0])
    return PipelinesView(
        health=worst_of(summary.health for summary in found),
        pipelines=tuple(found),
    )
