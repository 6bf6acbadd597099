"""``counts``: reading the result table."""

from collections.abc import Sequence
from typing import Final

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, pass_app, pipeline_argument
from tally.cli.replay_options import read_minute
from tally.cli.shapes import row_shape
from tally.cli.ui.output import Output
from tally.cli.ui.values import number, printable, shortened
from tally.formatting import plural
from tally.ledger.results import ResultRow, result_rows
from tally.ledger.tables import Tables, find_tables

LAST: Final = 10
LABEL_WIDTH: Final = 40
"""Characters that are shown of a label's value; --json has all of it."""


def _minute(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return None if value is None else read_minute(value)


@click.command(
    cls=Command,
    examples=[
        "tally counts",
        "tally counts error_log --last 60 --json",
        "tally counts --since '2026-11-20 14:05' --until '2026-11-20 14:20'",
    ],
)
@pipeline_argument
@click.option(
    "--last",
    type=click.IntRange(min=1, max=10_000_000),
    metavar="N",
    help=f"Only so many of the latest minutes; {LAST} when nothing else is said.",
)
@click.option(
    "--since",
    metavar="'YYYY-MM-DD HH:MM'",
    callback=_minute,
    help="From this minute of the lines' own clock on.",
)
@click.option(
    "--until",
    metavar="'YYYY-MM-DD HH:MM'",
    callback=_minute,
    help="Up to this minute, itself included.",
)
@json_option
@pass_app
def counts(
    app: App, pipeline: str | None, last: int | None, since: str | None, until: str | None
) -> None:
    """Show the result: lines per minute.

    Minutes without such lines have no row. Which lines count is said as it is configured now; a
    minute that was counted under other rules keeps its count until it is replayed.
    """
    chosen = app.settings.pipeline(app.pipeline(pipeline))
    if last is None and since is None and until is None:
        last = LAST
    with app.context.database.transaction(read_only=True) as tx:
        tables = find_tables(tx, chosen.name) or Tables(result=chosen.table)
        found = result_rows(tx, tables, last=last, since=since, until=until)
    total = sum(row.log_count for row in found)
    if app.out.as_json:
        app.out.document(
            {
                "pipeline": chosen.name,
                "table": chosen.table,
                "levels": list(chosen.levels),
                "rules": chosen.rules,
                "minutes": [row_shape(row) for row in found],
                "total": total,
            }
        )
        return
    show_rows(app.out, tables, found)
    minutes = len({row.log_time for row in found})
    app.out.line(f"{plural(minutes, 'minute')} shown, {plural(total, 'line')}")
    app.out.line(f"counted now: {chosen.rules}")


def show_rows(out: Output, tables: Tables, rows: Sequence[ResultRow]) -> None:
    """Rows of the result, or of what is added to it, as a table."""
    labels = [label.column for label in tables.labels]
    measured = ["BYTES"] if tables.has_bytes else []
    out.table(
        ["MINUTE", *(label.upper() for label in labels), "LINES", *measured],
        [
            [
                row.log_time[:-3],
                *(shortened(printable(row.labels[label]), LABEL_WIDTH) for label in labels),
                number(row.log_count),
                *([number(row.log_bytes)] if measured else []),
            ]
            for row in rows
        ],
        numbers=["LINES", *measured],
    )
