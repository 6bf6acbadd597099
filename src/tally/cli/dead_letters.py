"""``dead-letters``: records that could not be understood."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, limit_option, pass_app, pipeline_argument
from tally.cli.shapes import letter_shape
from tally.cli.ui.values import number, printable_bytes, shortened
from tally.ledger.dead_letters import list_dead_letters

VALUE_CHARACTERS = 120


@click.command(
    "dead-letters",
    cls=Command,
    examples=[
        "tally dead-letters --batch 42",
        "tally dead-letters error_log --limit 1000 --json | jq -r '.dead_letters[].reason'",
    ],
)
@pipeline_argument
@click.option(
    "--batch", "batch_id", type=click.IntRange(min=1), metavar="BATCH", help="Only of this batch."
)
@click.option("--reason", metavar="REASON", help="Only with this reason.")
@limit_option(50, "Records")
@json_option
@pass_app
def dead_letters(
    app: App, pipeline: str | None, batch_id: int | None, reason: str | None, limit: int
) -> None:
    """List records that could not be understood.

    They are kept with their offset and the reason, and are no part of the result. Whatever does
    not print is escaped, and long values are cut here; --json carries all the bytes that are kept,
    in base64.
    """
    name = app.pipeline(pipeline)
    with app.context.database.transaction(read_only=True) as tx:
        found = list_dead_letters(tx, name, batch_id=batch_id, reason=reason, limit=limit)
    if app.out.as_json:
        app.out.document({"pipeline": name, "dead_letters": [letter_shape(x) for x in found]})
        return
    app.out.table(
        ["BATCH", "PARTITION", "OFFSET", "REASON", "BYTES", "VALUE"],
        [
            [
                str(letter.batch_id),
                str(letter.partition),
                str(letter.offset),
                letter.reason,
                number(letter.value_bytes),
                shortened(printable_bytes(letter.value), VALUE_CHARACTERS),
            ]
            for letter in found
        ],
        numbers=["BATCH", "OFFSET", "BYTES"],
    )
