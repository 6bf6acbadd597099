"""``lines`` and ``dead-letters``: the records behind a count, and those that are no part of it."""

from datetime import datetime
from typing import Any

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import command
from tally.errors import EXIT_FINDINGS, EXIT_OK
from tally.ledger.dead_letters import Among
from tally.ledger.parts import Of
from tally.lines.format import MalformedReason
from tally.reading import columns as described
from tally.reading import dead_letters as letters
from tally.reading import lines as behind


def _label_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is no label with its value, such as service=checkout")
    return name, value


@command(document=behind.LinesView)
@click.argument("minute", metavar="[MINUTE]", type=options.MINUTE, required=False)
@options.pipeline_option(help="Of this pipeline; needed where there are several.")
@options.batch_option("batch_id", help="Only those that this batch has counted.")
@click.option(
    "--partition",
    metavar="TOPIC/NUMBER",
    help="Only those of this partition; alone, those of the last batch that has read it.",
)
@click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    type=options.Text("name=value", _label_value),
    help="Only those with this value of a label; may be repeated.",
)
@options.limit(default=20, help="Lines that are shown at most.")
@click.option(
    "--seconds",
    type=options.Number("a number of seconds"),
    default=60,
    help="How long is looked for them at most.",
)
def lines(
    app: App,
    /,
    minute: str | None,
    pipeline: str | None,
    labels: tuple[tuple[str, str], ...],
    partition: str | None,
    batch_id: int | None,
    **bounds: int,
) -> int:
    """Show the lines behind a count.

    Reads them from Kafka at exactly the offsets of the ledger, without Spark, and says whether they
    are as many as were counted; exits with 1 when they are not. What Kafka no longer holds, and
    what was counted under other rules, is said. Nothing of it is stored.

    Examples:
        tally lines '2026-11-20 14:05'
        tally lines '2026-11-20 14:05' --label service=checkout --limit 100
        tally lines --batch 42 --json | jq -r '.lines[].value'
        tally lines --partition alog/0
    """
    of = Of(
        minute=None if minute is None else datetime.fromisoformat(minute),
        labels=dict(labels),
        batch_id=batch_id,
        partition=None if partition is None else letters.read_partition(partition, "--partition"),
    )
    asked = behind.Bounds(lines=bounds["limit"], seconds=bounds["seconds"])
    view = behind.lines(app.context, app.pipeline(pipeline), of, asked)
    app.out.document(view)
    app.out.records(described.LINE, view.lines)
    if view.found > len(view.lines):
        app.out.line(f"{len(view.lines):,} shown: --limit N")
    app.out.sentence(str(view))
    return EXIT_FINDINGS if view.verdict is behind.Verdict.DIFFERENT else EXIT_OK


@command("dead-letters", document=letters.DeadLettersView)
@options.pipeline
@options.batch_option("batch_id", help="Only of this batch.")
@click.option(
    "--reason",
    metavar="REASON",
    type=click.Choice([str(r) for r in MalformedReason]),
    help="Only with this reason.",
)
@click.option("--partition", metavar="TOPIC/NUMBER", help="Only of this partition.")
@click.option(
    "--text",
    help="Only those that hold this text; needs --batch, --partition or --since, whose "
    "dead letters are all looked through.",
)
@click.option(
    "--since",
    type=options.TIME,
    help="Only of batches that were committed at or after this time, such as 2026-11-20T14:05:00Z.",
)
@click.option(
    "--before",
    type=options.TIME,
    help="Only of batches that were committed before this time; needs one of the others.",
)
@click.option("--minute", type=options.MINUTE, help="Only of this minute, on the lines' clock.")
@options.limit(default=50, help="Records at most.")
@options.wide
def dead_letters(
    app: App,
    /,
    pipeline: str | None,
    partition: str | None,
    reason: str | None,
    text: str | None,
    limit: int,
    minute: str | None,
    **bounds: Any,
) -> None:
    """List records that could not be understood.

    They are kept with their offset and the reason, and are no part of the result. Unprintable bytes
    are escaped, and long values are cut here; --json has all the bytes that are kept, in base64.

    \b
    REASON is null-value, empty-value, no-match, no-time, time-invalid,
    time-out-of-range or no-level.

    Examples:
        tally dead-letters --batch 42
        tally dead-letters --minute '2026-11-20 14:05'
        tally dead-letters error_log --partition alog/0 --text timeout
        tally dead-letters error_log --limit 1000 --json | jq -r '.dead_letters[].reason'
    """  # noqa: D301 - click keeps the lines after a backspace
    name = app.pipeline(pipeline)
    place = None if partition is None else letters.read_partition(partition, "--partition")
    at = None if minute is None else datetime.fromisoformat(minute)
    among = Among(partition=place, minute=at, **bounds)
    view = letters.dead_letters(app.context, name, among, reason=reason, text=text, limit=limit)
    app.out.document(view)
    app.out.records(described.DEAD_LETTER, view.dead_letters)
    if len(view.dead_letters) == limit:
        app.out.line(f"{limit:,} shown, there may be more: --limit N")
