"""``abandon``: abandon a planned batch."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    batch_argument,
    dry_run_option,
    json_option,
    pass_app,
    reason_option,
)
from tally.formatting import plural
from tally.maintenance import abandon as use_case
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
@json_option
@pass_app
def abandon(app: App, batch_id: int, reason: str, dry_run: bool) -> None:
    """Abandon a planned batch.

    It counts nothing, and an attempt that still runs can no longer commit it. The offsets of an
    ingest batch are planned again. What a batch of a replay was to replace stays in the result. A
    committed batch cannot be abandoned.
    """
    view = use_case.abandon(app.context, batch_id, reason=reason, dry_run=dry_run)
    if app.out.as_json:
        app.out.view(view)
        return
    for r in view.ranges:
        app.out.line(str(r))
    app.out.line(
        f"batch {batch_id} of {view.pipeline} {'would be' if dry_run else 'is'} abandoned; "
        + (
            f"{plural(view.offsets, 'offset')} stay uncounted until the next plan"
            if view.kind is BatchKind.INGEST
            else "what it was to replace stays as it is"
        )
    )
