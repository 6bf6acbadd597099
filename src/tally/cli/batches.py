"""``batches``: list batches, newest first."""

import click

from tally.app import batches as use_case
from tally.app.batches import BatchesRequest
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, limit_option, pass_app, pipeline_argument, wide_option
from tally.cli.ui.values import moment, number
from tally.ledger.records import BatchRecord
from tally.model import BatchState


@click.command(
    cls=Command,
    examples=["tally batches --limit 5", "tally batches error_log --state abandoned --json"],
)
@pipeline_argument
@limit_option(20, "Batches")
@click.option(
    "--state",
    type=click.Choice([str(state) for state in BatchState]),
    help="Only batches in this state.",
)
@wide_option
@json_option
@pass_app
def batches(app: App, pipeline: str | None, limit: int, state: str | None) -> None:
    """List batches, newest first.

    A batch that a replay has replaced since is marked so; its counts are those of its commit.
    """
    request = BatchesRequest(
        pipeline=app.pipeline(pipeline), state=BatchState(state) if state else None, limit=limit
    )
    view = use_case.batches(app.context, request)
    if app.out.as_json:
        app.out.view(view)
        return
    numbers = ["BATCH", "ATTEMPT", "OFFSETS", "RECORDS", "MATCHED", "MALFORMED", "CONTINUATIONS"]
    times = ["PLANNED (UTC)", "COMMITTED (UTC)"]
    app.out.table(
        ["BATCH", "KIND", "STATE", "ATTEMPT", *times, *numbers[2:]],
        [_row(batch) for batch in view.batches],
        numbers=numbers,
        texts=["STATE"],
        extra=["ATTEMPT", times[0], "OFFSETS", "CONTINUATIONS"],
    )


def _row(batch: BatchRecord) -> list[str]:
    return [
        str(batch.batch_id),
        f"{batch.kind}" if batch.replay_id is None else f"{batch.kind} {batch.replay_id}",
        batch.standing,
        str(batch.attempt),
        moment(batch.planned_at, zone=""),
        moment(batch.committed_at, zone=""),
        number(batch.offsets),
        number(batch.records),
        number(batch.matched),
        number(batch.malformed),
        number(batch.continuations),
    ]
