"""``batches``: list batches, newest first."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    json_option,
    limit_option,
    pass_app,
    pipeline_argument,
)
from tally.cli.shapes import batch_shape
from tally.cli.ui.values import moment, number
from tally.ledger.reading import (
    BatchRecord,
    list_batches,
)
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
@json_option
@pass_app
def batches(app: App, pipeline: str | None, limit: int, state: str | None) -> None:
    """List batches, newest first.

    What a replay has replaced since is marked; its numbers are those of when it was committed.
    """
    name = app.pipeline(pipeline)
    wanted = BatchState(state) if state else None
    with app.context.database.transaction(read_only=True) as tx:
        found = list_batches(tx, name, state=wanted, limit=limit)
    if app.out.as_json:
        app.out.document({"pipeline": name, "batches": [batch_shape(batch) for batch in found]})
        return
    numbers = ["BATCH", "ATTEMPT", "OFFSETS", "RECORDS", "MATCHED", "MALFORMED"]
    app.out.table(
        ["BATCH", "KIND", "STATE", "ATTEMPT", "PLANNED", "COMMITTED", *numbers[2:]],
        [
            [
                str(batch.batch_id),
                _kind(batch),
                batch.standing,
                str(batch.attempt),
                moment(batch.planned_at),
                moment(batch.committed_at),
                number(batch.offsets),
                number(batch.records),
                number(batch.matched),
                number(batch.malformed),
            ]
            for batch in found
        ],
        numbers=numbers,
    )


def _kind(batch: BatchRecord) -> str:
    return f"{batch.kind}" if batch.replay_id is None else f"{batch.kind} {batch.replay_id}"
