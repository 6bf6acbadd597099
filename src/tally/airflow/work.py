"""What tasks ask of Tally, as plain values. Imports Kafka and MySQL: for running tasks only."""

import dataclasses
from dataclasses import asdict, dataclass
from typing import Any

from tally import __version__
from tally.ledger.batches import Requester
from tally.ledger.reading import batch_record, segments_of
from tally.ledger.replay_runs import standing_for
from tally.model import BatchState
from tally.pipeline.context import Context
from tally.pipeline.plan import Planned, plan_batch
from tally.planning.blocks import blocked_error


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanNote:
    """What ``plan`` hands on, as plain values: it is stored and shown by Airflow."""

    batch_id: int | None
    """The batch to count; None when there is nothing new."""
    ranges: list[str]
    """What it reads, ``alog/0 [300, 310)``."""
    blocked: str | None
    """Why the run must end red, None when nothing is blocked."""
    text: str
    """All of it in one sentence."""

    def to_xcom(self) -> dict[str, Any]:
        """As a plain dictionary."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A committed batch, as the events of the result's asset carry it."""

    batch_id: int
    """The batch."""
    ranges: list[str]
    """What it read."""
    records: int
    """Records read."""
    matched: int
    """Lines counted."""
    malformed: int
    """Records that could not be understood."""
    planned_anew_as: list[int] | None = None
    """The batches of a replay that took its place; None when none had to."""

    def to_extra(self) -> dict[str, Any]:
        """As a plain dictionary."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        """One line for the log."""
        anew = f" as {self.planned_anew_as}" if self.planned_anew_as else ""
        return (
            f"batch {self.batch_id} is committed{anew}: {self.records} records, {self.matched} "
            f"counted, {self.malformed} malformed, from {', '.join(self.ranges)}"
        )


def plan(ctx: Context, pipeline: str, dag_id: str, run_id: str) -> PlanNote:
    """Plan the pipeline's next batch, in the name of a DAG run."""
    requester = Requester(name=f"airflow:{dag_id}", version=__version__, run_id=run_id)
    return note(ctx, plan_batch(dataclasses.replace(ctx, requester=requester), pipeline))


def note(ctx: Context, planned: Planned) -> PlanNote:
    """A plan in plain values."""
    blocked = blocked_error(planned.pipeline, planned.blocks) if planned.blocks else None
    batch = planned.batch
    ranges = [str(segment.range) for segment in batch.segments] if batch else []
    if batch:
        verb = "is taken up again" if planned.resumed else "is planned"
        text = f"batch {batch.batch_id} {verb}: {', '.join(ranges)}"
    else:
        text = f"nothing new in {', '.join(ctx.settings.pipeline(planned.pipeline).topics)}"
    if planned.abandoned:
        text += f"; the open batch was given up: {'; '.join(planned.abandoned)}"
    if blocked:
        text += f"; {blocked}"
    return PlanNote(
        batch_id=batch.batch_id if batch else None,
        ranges=ranges,
        blocked=str(blocked) if blocked else None,
        text=text,
    )


def is_committed(ctx: Context, batch_id: int) -> bool:
    """Whether the ledger has the batch, or whatever was planned in its place, as committed.

    Raises:
        UnknownBatchError: The ledger has none of that id.
        FencedError: The batch was abandoned.
    """
    with ctx.database.transaction(read_only=True) as tx:
        batches = [batch_record(tx, number) for number in standing_for(tx, batch_id)]
    return all(batch.state is BatchState.COMMITTED for batch in batches)


def offsets(ctx: Context, batch_id: int) -> int:
    """How many offsets a batch, or whatever was planned in its place, spans."""
    with ctx.database.transaction(read_only=True) as tx:
        return sum(batch_record(tx, number).offsets for number in standing_for(tx, batch_id))


def outcome(ctx: Context, batch_id: int) -> Outcome:
    """What a committed batch, or whatever was planned in its place, read and found."""
    with ctx.database.transaction(read_only=True) as tx:
        standing = standing_for(tx, batch_id)
        batches = [batch_record(tx, number) for number in standing]
        ranges = [str(s.range) for number in standing for s in segments_of(tx, number)]
    return Outcome(
        batch_id=batch_id,
        ranges=ranges,
        records=sum(batch.records or 0 for batch in batches),
        matched=sum(batch.matched or 0 for batch in batches),
        malformed=sum(batch.malformed or 0 for batch in batches),
        planned_anew_as=None if standing == [batch_id] else standing,
    )
