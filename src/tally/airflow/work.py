"""The work of the minute DAG's tasks. Imports Kafka and MySQL: for running tasks only."""

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tally import __version__
from tally.app.health import malformed_problem
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.counting import plan as use_case
from tally.counting.outcomes import BatchOutcome
from tally.counting.plan import PlanView, named_batches
from tally.formatting import continued
from tally.ledger.batches import Requester
from tally.ledger.rules import Understood
from tally.planning.blocks import blocked_error


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanNote:
    """The XCom of ``plan``, as plain values that Airflow stores and shows."""

    batch_ids: list[int]
    """The batches to count; empty when there is nothing new."""
    ranges: list[str]
    """The ranges that it reads, ``alog/0 [300, 310)``."""
    blocked: str | None
    """Why the run must end red; None when nothing is blocked."""
    text: str
    """The outcome of planning in one sentence."""

    def to_xcom(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


def plan(
    ctx: Context, pipeline: str, dag_id: str, run_id: str, scheduled_at: datetime | None = None
) -> PlanNote:
    """Plan the pipeline's next batch; the ledger records the DAG run, and when it was due."""
    requester = Requester(
        name=f"airflow:{dag_id}", version=__version__, run_id=run_id, scheduled_at=scheduled_at
    )
    asked = dataclasses.replace(ctx, requester=requester)
    view = use_case.plan(asked, pipeline)
    return note(view, ctx.settings.pipeline(pipeline).topics)


def note(view: PlanView, topics: Sequence[str]) -> PlanNote:
    """A plan in plain values.

    Args:
        view: The outcome of planning.
        topics: The topics in which nothing is new, when there is no batch.
    """
    blocked = blocked_error(view.pipeline, view.blocks) if view.blocks else None
    ranges = [str(r) for r in view.ranges]
    text = f"nothing new in {', '.join(topics)}"
    if view.batches:
        text = f"{named_batches(view.batch_ids)} {view.verb}: {', '.join(ranges)}"
    if view.abandoned:
        text += f"; the open batch is abandoned: {'; '.join(view.abandoned)}"
    if blocked:
        text += f"; {blocked}"
    return PlanNote(
        batch_ids=view.batch_ids,
        ranges=ranges,
        blocked=str(blocked) if blocked else None,
        text=text,
    )


def outcome_text(outcome: BatchOutcome) -> str:
    """A committed batch in one line for the log."""
    instead = f" as {list(outcome.standing)}" if outcome.is_replanned else ""
    behind = f" and {list(outcome.followed_by)} behind it" if outcome.followed_by else ""
    are = "is" if len(outcome.batch_ids) == 1 else "are"
    return (
        f"{named_batches(outcome.batch_ids)} {are} committed{instead}{behind}: "
        f"{outcome.records} records, "
        f"{outcome.matched} matched, {outcome.malformed} malformed"
        f"{continued(outcome.continuations)}, from "
        f"{', '.join(map(str, outcome.ranges))}"
    )


def warning_of(outcome: BatchOutcome, pipeline: Pipeline) -> str | None:
    """What the health of the pipeline says of a batch of which too much is malformed."""
    read = Understood(
        records=outcome.records,
        malformed=outcome.malformed,
        continuations=outcome.continuations,
    )
    problem = malformed_problem(pipeline, read)
    if problem is None:
        return None
    return f"{problem.reason}: {problem.detail}. Next: {problem.next_step}"


def event_of(outcome: BatchOutcome) -> dict[str, Any]:
    """A committed batch, with those that caught up behind it, for XCom and the asset's event."""
    event: dict[str, Any] = {
        "batch_ids": list(outcome.batch_ids),
        "ranges": [str(r) for r in outcome.ranges],
        "records": outcome.records,
        "matched": outcome.matched,
        "malformed": outcome.malformed,
        "continuations": outcome.continuations,
        "seconds_until": dict(outcome.steps),
    }
    if outcome.is_replanned:
        event["replanned_as"] = list(outcome.standing)
    if outcome.followed_by:
        event["followed_by"] = list(outcome.followed_by)
    return event
