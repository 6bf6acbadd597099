"""``show``: one batch with its ranges and counts."""

from collections.abc import Mapping
from typing import Any, Final

import click

from tally.app import batches as use_case
from tally.app.batches import BatchRequest, BatchView, SegmentView
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.counts import show_rows
from tally.cli.options import Number, batch_argument, json_option, pass_app, wide_option
from tally.cli.ui.values import moment, number
from tally.formatting import ABSENT, continued, plural
from tally.model import BatchState

REPLACES: Final[Mapping[BatchState, str]] = {
    BatchState.PLANNED: "is to replace",
    BatchState.COMMITTED: "has replaced",
    BatchState.ABANDONED: "was to replace",
}


@click.command(cls=Command, examples=["tally show 42", "tally show 42 --rows 100 --json"])
@batch_argument
@click.option(
    "--rows",
    "--minutes",
    "rows",
    type=Number("a number of rows", min=0, max=1_000_000),
    default=10,
    show_default=True,
    help="The largest number of rows (minutes and labels), those with most lines first.",
)
@wide_option
@json_option
@pass_app
def show(app: App, batch_id: int, rows: int) -> None:
    """Show one batch with its ranges and counts.

    Shows who planned, claimed, committed or abandoned it and when, with which version and rules;
    what each range held; the minutes to which it added most lines; and what superseded it. For a
    batch of a replay also the request.
    """
    view = use_case.batch(app.context, BatchRequest(batch_id=batch_id, rows=rows))
    if app.out.as_json:
        app.out.view(view)
        return
    _show_batch(app, view)
    _show_segments(app, view)
    if view.minutes_touched:
        app.out.line()
        show_rows(app.out, view.columns, view.minutes)
        what = "row" if view.columns.labels else "minute"
        app.out.line(f"{len(view.minutes):,} of {plural(view.rows_touched, what)} shown")


def _show_batch(app: App, batch: BatchView) -> None:
    replay = batch.replay
    facts: list[tuple[str, Any]] = [
        ("batch", f"{batch.batch_id}, {batch.kind} of {batch.pipeline}"),
        ("replay", replay and f"{replay.replay_id}, {replay.request}: {replay.reason}"),
        (REPLACES[batch.state], batch.replaced),
        ("state", f"{batch.standing}, attempt {batch.attempt}"),
        ("scheduled", batch.scheduled_at and moment(batch.scheduled_at)),
        ("planned", f"{moment(batch.planned_at)} by {batch.requested_by}"),
        ("planned with", f"tally {batch.planned_version}"),
        ("run id", batch.run_id),
        ("claimed", batch.claimed_at and f"{moment(batch.claimed_at)} by {batch.claimed_by}"),
        ("read", batch.read_at and moment(batch.read_at)),
        ("committed", batch.committed_at and moment(batch.committed_at)),
        ("took", batch.committed_at and _steps(batch)),
        (
            "counted with",
            batch.committed_version
            and f"tally {batch.committed_version}, rules {batch.format_fingerprint}",
        ),
        (
            "abandoned",
            batch.abandoned_at and f"{moment(batch.abandoned_at)} by {batch.abandoned_by}",
        ),
        ("reason", batch.reason),
        (
            "pruned",
            batch.pruned_at and f"{moment(batch.pruned_at)}: the sums and ranges below lack that",
        ),
        ("offsets", number(batch.offsets)),
        ("records", batch.records is not None and _sums(batch)),
    ]
    for name, value in facts:
        if value:
            app.out.line(f"{name:14}{value}")


def _steps(batch: BatchView) -> str:
    """``2.1 s until planned, 0.4 s until claimed, 1.8 s until read, 0.1 s until committed``."""
    return ", ".join(f"{seconds:.1f} s until {name}" for name, seconds in batch.steps.items())


def _sums(batch: BatchView) -> str:
    return (
        f"{number(batch.records)}: {number(batch.matched)} matched, "
        f"{number(batch.unmatched)} unmatched, {number(batch.malformed)} malformed"
        f"{continued(batch.continuations)}"
    )


def _show_segments(app: App, batch: BatchView) -> None:
    app.out.line()
    numbers = ["SEGMENT", "RECORDS", "MATCHED", "MALFORMED", "REPLACES", "SUPERSEDED BY"]
    app.out.table(
        ["SEGMENT", "PARTITION", "RANGE", "STATE", *numbers[1:]],
        [_row(segment) for segment in batch.ranges],
        numbers=numbers,
        texts=["STATE"],
        extra=["SEGMENT", "REPLACES", "SUPERSEDED BY"],
    )


def _row(segment: SegmentView) -> list[str]:
    by = f" by batch {segment.superseded_by_batch}" if segment.superseded_by else ""
    return [
        str(segment.segment_id),
        segment.place,
        segment.span,
        f"{segment.state}{by}",
        number(segment.records),
        number(segment.matched),
        number(segment.malformed),
        number(len(segment.replaces) or None),
        str(segment.superseded_by or ABSENT),
    ]
