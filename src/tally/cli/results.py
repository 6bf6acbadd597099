"""``counts`` and ``audit``: the result, and its proof."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Final

import click

from tally.aggregates.aggregate import MEASURES
from tally.audit import audit as audits
from tally.cli import options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.output import Output, number
from tally.cli.session import shared_session
from tally.context import Context
from tally.each import for_each
from tally.errors import EXIT_FINDINGS, EXIT_OK
from tally.formatting import plural, printable
from tally.ledger.results import ResultRow
from tally.reading import columns as described
from tally.reading import counts as results
from tally.reading.columns import COUNT, Column

LAST: Final = 10
LABEL_WIDTH: Final = 40
"""Characters that are shown of a label's value; --wide and --json have all of it."""
VIOLATIONS_SHOWN: Final = 50

STATE: Final = Column("state", "", "STATE")
RULES: Final = (
    Column("rule", "", "RULES", of=lambda row: "" if row.rule is results.Rule.TODAY else row.rule),
)

# A line for each of several pipelines.
SUMMARY: Final = (
    Column("pipeline", "", "PIPELINE"),
    Column("minutes", "", "MINUTES", COUNT, of=lambda view: len(_minutes(view))),
    Column("from", "", "FROM", of=lambda view: min(_minutes(view), default=None)),
    Column("until", "", "UNTIL", of=lambda view: max(_minutes(view), default=None)),
    Column("total", "", "LINES", COUNT),
    Column(
        "rules",
        "",
        "RULES",
        of=lambda view: results.Rule.OTHER if view.other_offsets else results.Rule.TODAY,
    ),
)


def _minutes(view: results.CountsView) -> set[str]:
    return {row.log_time[:-3] for row in view.minutes}


@command(document=results.CountsView, several=results.CountsListView)
@options.pipeline
@click.option(
    "--last",
    type=options.Number("a number of minutes", max=10_000_000),
    metavar="N",
    help=f"Only this many of the latest minutes; {LAST} by default.",
)
@click.option("--since", type=options.MINUTE, help="From this minute on, by the lines' own clock.")
@click.option("--until", type=options.MINUTE, help="Up to and including this minute.")
@click.option("--complete", is_flag=True, help="Only minutes that are complete.")
@options.wide
def counts(
    app: App,
    pipeline: str | None,
    last: int | None,
    since: str | None,
    until: str | None,
    complete: bool,
) -> int:
    """Show the result: lines per minute.

    A minute is open until all is counted that reached Kafka in time; a complete one that changes
    after that, by a late line or a replay, is amended.

    A minute without counted lines has no row. Minutes with lines that were counted under other
    rules than today's are marked, and the replay is named that brings them up to date, as far as
    Kafka still holds their records. The number of all offsets under other rules is shown, too.

    Examples:
        tally counts
        tally counts error_log --last 60 --json
        tally counts --complete --json | jq '.minutes[-1].log_count'
        tally counts --since '2026-11-20 14:05' --until '2026-11-20 14:20'
    """
    if last is None and since is None and until is None:
        last = LAST

    read = partial(
        results.counts, app.context, last=last, since=since, until=until, complete=complete
    )
    names = app.chosen(pipeline)
    if len(names) == 1:
        view = read(names[0])
        app.out.document(view)
        _show_counts(app.out, view, last)
        return EXIT_OK
    each = for_each(names, read)
    app.out.document(results.CountsListView(counts=tuple(each.done), errors=each.views))
    app.out.records(SUMMARY, each.done)
    if last is not None:
        app.out.line(f"the latest {plural(last, 'minute')} of each; see --last")
    return app.finish(each)


def _show_counts(out: Output, view: results.CountsView, last: int | None) -> None:
    rules = {row.rule for row in view.minutes}
    more = RULES if rules - {results.Rule.TODAY} else ()
    show_rows(out, view.columns, view.minutes, (STATE, *more))
    minutes = len({row.log_time for row in view.minutes})
    shown = f"{plural(minutes, 'minute')} shown, {plural(view.total, 'line')}"
    is_cut = last is not None and minutes == last
    out.line(f"{shown}; --last {10 * minutes} shows earlier ones" if is_cut else shown)
    out.sentence(f"counted now: {view.rules}")
    if view.outdated is not None:
        out.sentence(str(view.outdated))
    if view.other_offsets:
        out.sentence(_other_offsets(view))
    if results.Rule.UNKNOWN in rules:
        out.line("unknown: the minute has lines of pruned segments, whose rules are not kept")


def _other_offsets(view: results.CountsView) -> str:
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


def show_rows(
    out: Output, columns: results.Columns, rows: Sequence[ResultRow], more: Sequence[Column] = ()
) -> None:
    """Rows of the result, or of what a batch adds to it, as a table.

    Args:
        out: Where to write.
        columns: The columns that the rows have.
        rows: The rows.
        more: Further columns.
    """
    width = None if out.wide else LABEL_WIDTH
    measures = dict.fromkeys(chain(*MEASURES.values()))
    measured = [of for of in measures if rows and getattr(rows[0], of.column) is not None]
    shown = [
        Column("minute", "", "MINUTE", of=lambda row: row.log_time[:-3]),
        *(
            Column(name, "", name.upper(), width=width, of=partial(_label, name))
            for name in columns.labels
        ),
        Column("log_count", "", "LINES", COUNT),
        *(Column(of.column, "", of.name.upper(), COUNT) for of in measured),
    ]
    out.records([*shown, *more], rows)


def _label(name: str, row: ResultRow) -> str:
    return printable(row.labels[name])


@command(document=audits.AuditView, several=audits.AuditsView)
@options.pipeline
@click.option("--recount", is_flag=True, help="Recount the live segments from Kafka and compare.")
@options.wide
def audit(app: App, pipeline: str | None, recount: bool) -> int:
    """Prove that the result is what Kafka held.

    On one consistent snapshot of the ledger: live segments and accepted losses tile each partition
    from its start to its next offset; the result table is the sum of the live contributions; every
    segment adds up; no state contradicts another. With --recount, every live segment that Kafka
    still holds is read again, and its counts and dead letters are compared; what Kafka no longer
    holds is listed as not checkable.

    Examples:
        tally audit
        tally audit error_log --recount
        tally audit error_log --json | jq .findings
    """
    names = app.chosen(pipeline)
    with shared_session(app) if recount else nullcontext(app.context) as ctx:
        prove = partial(_audit, app, ctx, recount)
        if len(names) == 1:
            view = prove(names[0])
            app.out.document(view)
            _show_audit(app.out, view)
            return EXIT_OK if view.holds else EXIT_FINDINGS
        each = for_each(names, prove)
    holds = all(view.holds for view in each.done)
    app.out.document(
        audits.AuditsView(
            holds=holds and not each.errors, audits=tuple(each.done), errors=each.views
        )
    )
    for view in each.done:
        _show_audit(app.out, view)
    code = app.finish(each)
    return code if holds else EXIT_FINDINGS


def _audit(app: App, ctx: Context, recount: bool, pipeline: str) -> audits.AuditView:
    with app.out.progress(f"recounting {pipeline}", "offsets") as meter:
        return audits.audit(ctx, pipeline, with_recount=recount, progress=meter.update)


def _show_audit(out: Output, view: audits.AuditView) -> None:
    out.sentence(
        f"{view.pipeline}: {plural(view.partitions, 'partition')}, "
        f"{plural(view.segments, 'live segment')}, {plural(view.records, 'record')}, "
        f"{plural(view.minutes, 'minute')}, {number(view.matched)} matched"
    )
    if (counted := view.recount) is not None:
        out.line(
            f"recounted from Kafka: {plural(counted.segments, 'segment')}, "
            f"{plural(counted.offsets, 'offset')}, {plural(counted.records, 'record')}"
        )
        for cause, offsets in counted.unchecked_offsets:
            out.sentence(f"not checkable: {plural(offsets, 'offset')} of {cause}")
        for gap in counted.before_start:
            out.sentence(f"before the start, and not counted: {gap}")
    if view.findings:
        out.records(described.VIOLATION, view.findings[:VIOLATIONS_SHOWN])
    out.left_out(len(view.findings) - VIOLATIONS_SHOWN)
    out.sentence(f"{view.pipeline}: {view.conclusion}")
