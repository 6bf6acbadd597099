"""``dead-letters``: records that could not be understood."""

from typing import Any

import click

from tally.app import dead_letters as use_case
from tally.app.dead_letters import DeadLettersRequest, read_partition
from tally.cli import completion
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    BATCH,
    json_option,
    limit_option,
    pass_app,
    pipeline_argument,
    read_time,
    wide_option,
)
from tally.cli.ui.values import number, shortened
from tally.formatting import ABSENT
from tally.lines.format import MalformedReason

VALUE_CHARACTERS = 120


@click.command(
    "dead-letters",
    cls=Command,
    examples=[
        "tally dead-letters --batch 42",
        "tally dead-letters error_log --partition alog/0 --text timeout",
        "tally dead-letters error_log --limit 1000 --json | jq -r '.dead_letters[].reason'",
    ],
)
@pipeline_argument
@click.option(
    "--batch",
    "batch_id",
    type=BATCH,
    metavar="BATCH",
    shell_complete=completion.batches,
    help="Only of this batch.",
)
@click.option(
    "--reason",
    metavar="REASON",
    type=click.Choice([str(r) for r in MalformedReason]),
    help="Only with this reason.",
)
@click.option("--partition", metavar="TOPIC/NUMBER", help="Only of this partition.")
@click.option(
    "--text",
    metavar="TEXT",
    help="Only those that hold this text; needs --batch, --partition or --since, whose "
    "dead letters are all looked through.",
)
@click.option(
    "--since",
    type=read_time,
    metavar="TIME",
    help="Only of batches that were committed at or after this time, such as 2026-11-20T14:05:00Z.",
)
@click.option(
    "--before",
    type=read_time,
    metavar="TIME",
    help="Only of batches that were committed before this time; needs one of the others.",
)
@limit_option(50, "Records")
@wide_option
@json_option
@pass_app
def dead_letters(app: App, /, pipeline: str | None, partition: str | None, **others: Any) -> None:
    """List records that could not be understood.

    They are kept with their offset and the reason, and are no part of the result. Unprintable bytes
    are escaped, and long values are cut here; --json has all the bytes that are kept, in base64.

    \b
    REASON is null-value, empty-value, no-match, no-time, time-invalid,
    time-out-of-range or no-level.
    """  # noqa: D301 - click keeps the lines behind a backspace
    request = DeadLettersRequest(
        pipeline=app.pipeline(pipeline),
        partition=None if partition is None else read_partition(partition, "--partition"),
        **others,
    )
    view = use_case.dead_letters(app.context, request)
    if app.out.as_json:
        app.out.view(view)
        return
    app.out.table(
        ["BATCH", "PARTITION", "OFFSET", "REASON", "BYTES", "VALUE"],
        [
            [
                str(letter.batch_id),
                letter.place,
                str(letter.offset),
                letter.reason,
                number(letter.value_bytes),
                shortened(letter.value or ABSENT, VALUE_CHARACTERS),
            ]
            for letter in view.dead_letters
        ],
        numbers=["BATCH", "OFFSET", "BYTES"],
        texts=["VALUE"],
    )
    if len(view.dead_letters) == request.limit:
        app.out.line(f"{request.limit:,} shown, there may be more: --limit N")
