"""``counts``: reading the result table."""

from typing import Final

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, pass_app, pipeline_argument
from tally.cli.replay_options import read_minute
from tally.cli.values import number
from tally.formatting import plural
from tally.ledger import results

LAST: Final = 10


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
        found = results.minutes(tx, chosen.table, last=last, since=since, until=until)
    if app.out.as_json:
        app.out.document(
            {
                "pipeline": chosen.name,
                "table": chosen.table,
                "levels": list(chosen.levels),
                "rules": chosen.rules,
                "minutes": [
                    {"log_time": f"{minute}:00", "log_count": count}
                    for minute, count in found.items()
                ],
                "total": sum(found.values()),
            }
        )
        return
    app.out.table(
        ["MINUTE", "LINES"],
        [[minute, number(count)] for minute, count in found.items()],
        numbers=["LINES"],
    )
    app.out.line(f"{plural(len(found), 'minute')} shown, {plural(sum(found.values()), 'line')}")
    app.out.line(f"counted now: {chosen.rules}")
