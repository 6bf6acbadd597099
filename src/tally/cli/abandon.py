"""``abandon``: give a planned batch up."""

import click

from tally.app import decisions
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    batch_argument,
    dry_run_option,
    pass_app,
    reason_option,
)
from tally.formatting import plural
from tally.model import BatchKind


@click.command(
    cls=Command,
    examples=[
        "tally abandon 42 --reason 'planned against the wrong cluster' --dry-run",
        "tally abandon 42 --reason 'planned against the wrong cluster'",
    ],
)
@batch_argument
@reason_option
@dry_run_option
@pass_app
def abandon(app: App, batch_id: int, reason: str, dry_run: bool) -> None:
    """Give a planned batch up.

    It counts nothing, and whoever still works on it can no longer commit it. The offsets of an
    ingest batch are planned anew; what a replay's batch was to replace stays. A committed batch
    cannot be abandoned.
    """
    batch = decisions.abandon(app.context, batch_id, reason=reason, dry_run=dry_run)
    for segment in batch.segments:
        app.out.line(str(segment.range))
    app.out.line(
        f"batch {batch_id} of {batch.pipeline} {'would be' if dry_run else 'is'} abandoned; "
        + (
            f"{plural(batch.offsets, 'offset')} stay uncounted until the next plan"
            if batch.kind is BatchKind.INGEST
            else "what it was to replace stays as it is"
        )
    )
