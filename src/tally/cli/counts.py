"""``counts``: reading the result table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import click

from tally.app import counts as use_case
from tally.app.counts import Columns, CountsListView, CountsRequest, CountsView, RowView
from tally.app.each import for_each
from tally.app.minute_rules import Rule
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import Number, json_option, pipeline_argument, wide_option
from tally.cli.replay_options import read_minute
from tally.cli.ui.output import Output
from tally.cli.ui.values import number, shortened
from tally.formatting import ABSENT, plural, printable

LAST: Final = 10
LABEL_WIDTH: Final = 40
"""Characters that are shown of a label's value; --wide and --json have all of it."""
NOTHING_MORE: Final[Mapping[str, Sequence[str]]] = {}


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
    type=Number("a number of minutes", max=10_000_000),
    metavar="N",
    help=f"Only this many of the latest minutes; {LAST} by default.",
)
@click.option(
    "--since",
    metavar="'YYYY-MM-DD HH:MM'",
    callback=_minute,
    help="From this minute on, by the lines' own clock.",
)
@click.option(
    "--until",
    metavar="'YYYY-MM-DD HH:MM'",
    callback=_minute,
    help="Up to and including this minute.",
)
@wide_option
@json_option
@click.pass_context
def counts(
    context: click.Context,
    pipeline: str | None,
    last: int | None,
    since: str | None,
    until: str | None,
) -> None:
    """Show the result: lines per minute.

    A minute without counted lines has no row. Minutes with lines that were counted under other
    rules than today's are marked, and the replay is named that brings them up to date, as far as
    Kafka still holds their records. So is the number of all offsets under other rules, as a minute
    may lack lines that those rules did not count.
    """
    app = context.ensure_object(App)
    if last is None and since is None and until is None:
        last = LAST
    names = app.chosen(pipeline)
    request = CountsRequest(pipeline=names[0], last=last, since=since, until=until)
    if len(names) > 1:
        context.exit(_show_all(app, names, request))
    app.settings.check(names[0])
    view = use_case.counts(app.context, request)
    if app.out.as_json:
        app.out.view(view)
        return
    rules = ["" if row.rule is Rule.TODAY else row.rule for row in view.minutes]
    show_rows(app.out, view.columns, view.minutes, {"RULES": rules} if any(rules) else {})
    minutes = len({row.log_time for row in view.minutes})
    shown = f"{plural(minutes, 'minute')} shown, {plural(view.total, 'line')}"
    is_cut = last is not None and minutes == last
    app.out.line(f"{shown}; --last {10 * minutes} shows earlier ones" if is_cut else shown)
    app.out.sentence(f"counted now: {view.rules}")
    if view.outdated is not None:
        app.out.sentence(str(view.outdated))
    if view.other_offsets:
        app.out.sentence(_other_offsets(view))
    if Rule.UNKNOWN in {row.rule for row in view.minutes}:
        app.out.line("unknown: the minute has lines of pruned segments, whose rules are not kept")


def _other_offsets(view: CountsView) -> str:
    """How many offsets are counted under other rules, and what can be done about it."""
    text = (
        f"{plural(view.other_offsets, 'offset')} in all are counted under other rules, so "
        "minutes may lack lines that today's rules count"
    )
    if view.other_offsets_gone == view.other_offsets:
        return f"{text}; they can no longer be replayed, as Kafka has deleted their records"
    if view.other_offsets_gone:
        text += f"; {number(view.other_offsets_gone)} of them can no longer be replayed"
    return (
        f"{text}; what Kafka still holds can be brought up to date: "
        f"tally replay {view.pipeline} --all --dry-run"
    )


def _show_all(app: App, names: Sequence[str], request: CountsRequest) -> int:
    """Show a line for each of several pipelines; returns the exit code."""
    each = for_each(
        names, lambda name: use_case.counts(app.context, replace(request, pipeline=name))
    )
    if app.out.as_json:
        app.out.view(CountsListView(counts=tuple(each.done), errors=each.views))
    else:
        app.out.table(
            ["PIPELINE", "MINUTES", "FROM", "UNTIL", "LINES", "RULES"],
            [_summary(view) for view in each.done],
            numbers=["MINUTES", "LINES"],
        )
        if request.last is not None:
            app.out.line(f"the latest {plural(request.last, 'minute')} of each; see --last")
    return app.finish(each)


def _summary(view: CountsView) -> list[str]:
    minutes = sorted({row.log_time[:-3] for row in view.minutes})
    ends = [minutes[0], minutes[-1]] if minutes else [ABSENT, ABSENT]
    rules = Rule.OTHER if view.other_offsets else Rule.TODAY
    return [view.pipeline, number(len(minutes)), *ends, number(view.total), rules]


def show_rows(
    out: Output,
    columns: Columns,
    rows: Sequence[RowView],
    more: Mapping[str, Sequence[str]] = NOTHING_MORE,
) -> None:
    """Rows of the result, or of what a batch adds to it, as a table.

    Args:
        out: Where to write.
        columns: The columns that the rows have.
        rows: The rows.
        more: Further columns, by header: a cell for each row.
    """
    measured = ["BYTES"] if columns.has_bytes else []
    out.table(
        ["MINUTE", *(label.upper() for label in columns.labels), "LINES", *measured, *more],
        [
            [
                row.log_time[:-3],
                *(_value(out, row.labels[label]) for label in columns.labels),
                number(row.log_count),
                *([number(row.log_bytes)] if measured else []),
                *(cells[index] for cells in more.values()),
            ]
            for index, row in enumerate(rows)
        ],
        numbers=["LINES", *measured],
    )


def _value(out: Output, label: str) -> str:
    text = printable(label)
    return text if out.wide else shortened(text, LABEL_WIDTH)
