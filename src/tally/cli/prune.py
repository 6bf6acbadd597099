"""``prune``: the retention of the ledger."""

import re
from datetime import timedelta
from typing import Final

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import dry_run_option, json_option, pass_app, pipeline_argument
from tally.formatting import plural
from tally.maintenance import prune as use_case

_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


def _parse_age(_: click.Context, __: click.Parameter, value: str) -> timedelta:
    """``30d``, ``12h`` or ``4w``."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not an age; write 30d, 12h or 4w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


@click.command(
    cls=Command,
    examples=["tally prune --older-than 30d --dry-run", "tally prune error_log --older-than 30d"],
)
@pipeline_argument
@click.option(
    "--older-than",
    required=True,
    metavar="AGE",
    callback=_parse_age,
    help="Only what was committed before this age: 30d, 12h or 4w.",
)
@dry_run_option
@json_option
@pass_app
def prune(app: App, pipeline: str | None, older_than: timedelta, dry_run: bool) -> None:
    """Fold old contributions that Kafka can no longer serve.

    What was counted from records that Kafka has deleted can no longer be replaced: its ranges are
    joined and its counts become one sum per minute. The result does not change, and the audit still
    verifies it. Also deletes the dead letters of what is folded, superseded counts and abandoned
    batches. What an open replay is to replace is kept, and so are decisions about losses and
    topics. It may run while batches are counted.
    """
    name = app.pipeline(pipeline)
    with app.out.progress("pruning", "partitions") as meter:
        view = use_case.prune(app.context, name, older_than, progress=meter.update, dry_run=dry_run)
    if app.out.as_json:
        app.out.view(view)
        return
    verb = "would be" if dry_run else "are"
    app.out.line(
        f"{view.pipeline}: {plural(view.segments, 'segment')} of "
        f"{plural(view.partitions, 'partition')} {verb} folded, "
        f"{plural(view.rows, 'row')} {verb} deleted"
    )
