"""``plan``: fix which offsets the next batch reads."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import dry_run_option, json_option, pass_app, pipeline_argument
from tally.cli.ui.values import number
from tally.counting import plan as use_case
from tally.counting.plan import PlanView


@click.command(
    cls=Command,
    examples=[
        "tally plan",
        "tally plan error_log --dry-run",
        "tally plan error_log --json | jq .batches[].batch_id",
    ],
)
@pipeline_argument
@dry_run_option
@json_option
@pass_app
def plan(app: App, pipeline: str | None, dry_run: bool) -> None:
    """Fix which offsets the next batch reads.

    Asks Kafka for new records and stores their ranges in the ledger; they never change after that.
    A batch that was planned before and is not committed yet is resumed unchanged. With delivery =
    "partition" each partition has a batch of its own. Partitions on which Kafka and the ledger
    disagree are left out and named, with exit code 4; the others are planned.
    """
    view = use_case.plan(app.context, app.pipeline(pipeline), dry_run=dry_run)
    if app.out.as_json:
        app.out.view(view)
    else:
        _show(app, view)
    view.check_unblocked()


def _show(app: App, view: PlanView) -> None:
    for cause in view.abandoned:
        verb = "would be" if view.dry_run else "is"
        app.out.line(f"the open batch {verb} abandoned: {cause}")
    app.out.line(view.title)
    if view.batches:
        app.out.table(
            ["PARTITION", "RANGE", "OFFSETS"],
            [[r.place, r.span, number(r.offsets)] for r in view.ranges],
            numbers=["OFFSETS"],
        )
