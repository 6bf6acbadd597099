"""All pipelines, one line each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Self

from tally.config.pipeline import Pipeline
from tally.errors import TallyError
from tally.kafka.client import AskedOnce, Kafka
from tally.ledger.rules import Understood
from tally.model import TopicPartition
from tally.status.health import Health, Problem, ProblemReason, disabled_problem, worst_of
from tally.status.status import Statuses, first_waiting
from tally.views import view_of

_WORST_FIRST: Final = (Health.FAIL, Health.WARN, Health.UNKNOWN, Health.OK, Health.SKIP)
_REQUESTS_MAX: Final = 4
"""How often Kafka is asked for the oldest records of all pipelines at most."""
_STANDING: Final = {
    ProblemReason.OPEN_LOSS: "blocked",
    ProblemReason.LATE: "behind",
    ProblemReason.LAG: "behind",
    ProblemReason.KAFKA_UNANSWERED: "no answer",
    ProblemReason.ENGINE_UNANSWERED: "no engine",
    ProblemReason.NOTHING_MATCHED: "no lines",
    ProblemReason.MALFORMED: "malformed",
    ProblemReason.RULES_ALTERNATE: "two rules",
}
"""Words for a problem where its name is too long for one."""


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
    counted_through: datetime | None = None
    """All is counted that Kafka had at this moment; null while that is not known of a partition."""
    records_per_second: float = 0.0
    """Committed by minute batches, on average over the last 15 minutes."""
    understood: Understood = field(default_factory=Understood)
    """What the latest batches under today's rules have read."""
    oldest_at: datetime | None = None
    """The timestamp of the oldest record that waits; null without one, and where it was not asked
    for."""

    @property
    def standing(self) -> str:
        """Its health in one word that says what is wrong: ``blocked``, ``behind``."""
        reasons = [one.reason for one in self.problems if one.health is self.health]
        return _STANDING.get(reasons[0], str(reasons[0])) if reasons else str(self.health)

    @property
    def malformed_share(self) -> float:
        """The share of the latest records that could not be understood."""
        found = self.understood
        return found.malformed / found.records if found.records else 0.0

    @property
    def urgency(self) -> tuple[int, int, str]:
        """Sorts pipelines, the worst first."""
        return _WORST_FIRST.index(self.health), -(self.lag_offsets or 0), self.pipeline

    @classmethod
    def unread(cls, name: str) -> Self:
        """The summary of a pipeline of which nothing was read yet."""
        return cls(pipeline=name, health=Health.UNKNOWN, problems=())

    @classmethod
    def disabled(cls, name: str, mistakes: Sequence[str]) -> Self:
        """The summary of a pipeline that is configured wrong."""
        return cls(pipeline=name, health=Health.FAIL, problems=(disabled_problem(mistakes),))


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelinesView:
    """All configured pipelines."""

    health: Health
    """The worst health of them."""
    pipelines: tuple[PipelineSummary, ...]
    """The pipelines, by name."""


def overview(
    statuses: Statuses, names: Sequence[str], *, with_times: bool = False
) -> PipelinesView:
    """Pipelines of the configuration, the disabled ones too; Kafka is asked once for all.

    Args:
        statuses: Asks for each.
        names: The pipelines.
        with_times: Whether Kafka is also asked how old what waits is. What it does not say in
            time is left out.
    """
    settings, found = statuses.ctx.settings, []
    known = [settings.pipelines[name] for name in names if name in settings.pipelines]
    topics = {
        committed: {t for one in known if one.reads_committed is committed for t in one.topics}
        for committed in (True, False)
    }
    kafka = AskedOnce(statuses.ctx.kafka, topics)
    waiting: dict[str, Mapping[TopicPartition, int]] = {}
    read = statuses.read(name for name in names if name not in settings.disabled)
    states = {state.pipeline.name: state for state in read}
    for name in names:
        if name in settings.disabled:
            found.append(PipelineSummary.disabled(name, settings.disabled[name]))
            continue
        view = statuses.asking(states[name], kafka)
        last = view.last_committed_batch
        at = last.committed_at if last else None
        waiting[name] = first_waiting(view) if with_times else {}
        of = {"topics": tuple(settings.pipeline(name).topics), "last_committed_at": at}
        found.append(view_of(PipelineSummary, view, oldest_at=None, **of))
    oldest = oldest_of(kafka, known, waiting)
    summaries = (replace(one, oldest_at=oldest.get(one.pipeline)) for one in found)
    return PipelinesView(health=worst_of(one.health for one in found), pipelines=tuple(summaries))


def oldest_of(
    kafka: Kafka,
    pipelines: Sequence[Pipeline],
    waiting: Mapping[str, Mapping[TopicPartition, int]],
) -> dict[str, datetime]:
    """Since when something waits in pipelines, as far as Kafka says it in time."""
    found: dict[str, datetime] = {}
    left = [one for one in pipelines if waiting.get(one.name)]
    for _ in range(_REQUESTS_MAX):
        # Of a partition one offset is asked for at a time, and pipelines may be at several.
        if not left:
            break
        first: dict[TopicPartition, int] = {}
        asked, committed = [], left[0].reads_committed
        for one in left:
            offsets = waiting[one.name]
            agrees = all(first.get(where, at) == at for where, at in offsets.items())
            if one.reads_committed is committed and agrees:
                first |= offsets
                asked.append(one)
        left = [one for one in left if one not in asked]
        try:
            records = kafka.records_at(first, read_committed=committed)
        except TallyError:
            break
        for one in asked:
            times = [
                records[where][0].written_at for where in waiting[one.name] if records.get(where)
            ]
            if known := [at for at in times if at is not None]:
                found[one.name] = min(known)
    return found
