"""Checks of the pipelines: their health, with what the doctor knows of Airflow and the engine."""

from collections.abc import Iterator, Mapping

from tally.app.doctor.diagnosis import Diagnosis, ok, skip
from tally.app.health import Health
from tally.app.overview import Statuses
from tally.app.status import StatusView
from tally.app.surroundings import Surroundings
from tally.errors import TallyError
from tally.pipeline.context import Context


def check_pipelines(ctx: Context, surroundings: Mapping[str, Surroundings]) -> Iterator[Diagnosis]:
    """The health of each pipeline.

    Args:
        ctx: What is needed from outside.
        surroundings: What is known of Airflow and of the engine, by pipeline.
    """
    statuses = Statuses(ctx=ctx)
    for name in sorted(ctx.settings.pipelines):
        try:
            view = statuses.of(name, surroundings[name])
        except TallyError:
            yield skip(f"pipeline.{name}", "the ledger could not be asked")
        else:
            yield diagnosis_of(view)


def diagnosis_of(view: StatusView) -> Diagnosis:
    """A pipeline's health as one diagnosis."""
    check = f"pipeline.{view.pipeline}"
    if view.health is Health.OK:
        return ok(check, _sound(view))
    return Diagnosis(
        check=check,
        health=view.health,
        detail="; ".join(problem.detail for problem in view.problems),
        next_step=next((p.next_step for p in view.problems if p.next_step), None),
    )


def _sound(view: StatusView) -> str:
    if view.last_committed_batch is None:
        return f"nothing counted yet, lag {view.lag_offsets or 0:,}"
    read = view.understood
    return (
        f"lag {view.lag_offsets or 0:,}, {read.malformed:,} of the last {read.records:,} malformed"
    )
