"""``batches``, ``show`` and ``replays``: what was planned, and what has become of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.results import show_rows
from tally.cli.ui.output import Output
from tally.cli.ui.values import moment, number
from tally.formatting import continued, plural
from tally.model import BatchState
from tally.reading import batches as use_case
from tally.reading import columns
from tally.reading.batches import BatchesView, BatchView
from tally.replay.run import ReplaysView, list_replays

REPLACES: Final[Mapping[BatchState, str]] = {
    BatchState.PLANNED: "is to replace",
    BatchState.COMMITTED: "has replaced",
    BatchState.ABANDONED: "was to replace",
}


@command(
    examples=["tally batches --limit 5", "tally batches error_log --state abandoned --json"],
    document=BatchesView,
)
@options.pipeline
@options.limit(20, "Batches")
@click.option(
    "--state",
    type=click.Choice([str(state) for state in BatchState]),
    help="Only batches in this state.",
)
@options.wide
def batches(app: App, pipeline: str | None, limit: int, state: str | None) -> None:
    """List batches, newest first.

    A batch that a replay has replaced since is marked so; its counts are those of its commit.
    """
    in_state = BatchState(state) if state else None
    view = use_case.batches(app.context, app.pipeline(pipeline), state=in_state, limit=limit)
    app.out.result(view, lambda out, of: out.records(columns.BATCH, of.batches))


@command(
    examples=["tally replays", "tally replays error_log --limit 5 --json"],
    document=ReplaysView,
)
@options.pipeline
@options.limit(20, "Replays")
@options.wide
def replays(app: App, pipeline: str | None, limit: int) -> None:
    """List replays, newest first.

    Shows who requested what, when and why, and how many of its batches and offsets are committed;
    abandoned batches are left out. An open replay waits for tally replay --resume.
    """
    view = list_replays(app.context, app.pipeline(pipeline), limit=limit)
    app.out.result(view, lambda out, of: out.records(columns.REPLAY, of.replays))


@command(
    examples=["tally show 42", "tally show 42 --rows 100 --json"],
    document=BatchView,
)
@options.batch
@click.option(
    "--rows",
    "--minutes",
    "rows",
    type=options.Number("a number of rows", min=0, max=1_000_000),
    default=10,
    show_default=True,
    help="The largest number of rows (minutes and labels), those with most lines first.",
)
@options.wide
def show(app: App, batch_id: int, rows: int) -> None:
    """Show one batch with its ranges and counts.

    Shows who planned, claimed, committed or abandoned it and when, with which version and rules;
    what each range held; the minutes to which it added most lines; and what superseded it. For a
    batch of a replay also the request.
    """
    app.out.result(use_case.batch(app.context, batch_id, rows=rows), _show_batch)


def _show_batch(out: Output, batch: BatchView) -> None:
    for name, value in _facts(batch).items():
        if value:
            out.line(f"{name:14}{value}")
    out.line()
    out.records(columns.SEGMENT, batch.ranges)
    if batch.minutes_touched:
        out.line()
        show_rows(out, batch.columns, batch.minutes)
        what = "row" if batch.columns.labels else "minute"
        out.line(f"{len(batch.minutes):,} of {plural(batch.rows_touched, what)} shown")


def _facts(batch: BatchView) -> dict[str, Any]:
    """What is known of a batch, by name; what does not apply is empty."""
    replay = batch.replay
    return {
        "batch": f"{batch.batch_id}, {batch.kind} of {batch.pipeline}",
        "replay": replay and f"{replay.replay_id}, {replay.request}: {replay.reason}",
        REPLACES[batch.state]: batch.replaced,
        "state": f"{batch.standing}, attempt {batch.attempt}",
        "scheduled": _when(batch.scheduled_at),
        "planned": f"{moment(batch.planned_at)} by {batch.requested_by}",
        "planned with": f"tally {batch.planned_version}",
        "run id": batch.run_id,
        "claimed": _when(batch.claimed_at, f" by {batch.claimed_by}"),
        "read": _when(batch.read_at),
        "committed": _when(batch.committed_at),
        "took": batch.committed_at and _steps(batch),
        "counted with": batch.committed_version
        and f"tally {batch.committed_version}, rules {batch.format_fingerprint}",
        "abandoned": _when(batch.abandoned_at, f" by {batch.abandoned_by}"),
        "reason": batch.reason,
        "pruned": _when(batch.pruned_at, ": the sums and ranges below lack that"),
        "offsets": number(batch.offsets),
        "records": batch.records is not None
        and f"{number(batch.records)}: {number(batch.matched)} matched, "
        f"{number(batch.unmatched)} unmatched, {number(batch.malformed)} malformed"
        f"{continued(batch.continuations)}",
    }


def _when(at: datetime | None, more: str = "") -> str:
    return f"{moment(at)}{more}" if at else ""


def _steps(batch: BatchView) -> str:
    """``2.1 s until planned, 0.4 s until claimed, 1.8 s until read, 0.1 s until committed``."""
    return ", ".join(f"{seconds:.1f} s until {name}" for name, seconds in batch.steps.items())
