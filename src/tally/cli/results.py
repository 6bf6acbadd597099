"""``counts``, ``dead-letters`` and ``audit``: the result, what is no part of it, and its proof."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, Final

import click

from tally.aggregates.aggregate import MEASURES
from tally.audit import audit as audits
from tally.audit.audit import AuditsView, AuditView
from tally.cli import completion, options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.replay_selector import read_minute
from tally.cli.session import shared_session
from tally.cli.ui.output import Output
from tally.cli.ui.values import number, shortened
from tally.context import Context
from tally.each import for_each
from tally.errors import EXIT_FINDINGS, EXIT_OK
from tally.formatting import ABSENT, plural, printable
from tally.ledger.dead_letters import Among
from tally.ledger.results import ResultRow
from tally.lines.format import MalformedReason
from tally.reading import columns as described
from tally.reading import counts as results
from tally.reading import dead_letters as letters
from tally.reading.counts import Columns, CountsListView, CountsView, Rule
from tally.reading.dead_letters import DeadLettersView, read_partition

LAST: Final = 10
LABEL_WIDTH: Final = 40
"""Characters that are shown of a label's value; --wide and --json have all of it."""
VIOLATIONS_SHOWN: Final = 50


@command(
    examples=[
        "tally counts",
        "tally counts error_log --last 60 --json",
        "tally counts --since '2026-11-20 14:05' --until '2026-11-20 14:20'",
    ],
    document=CountsView,
    several=CountsListView,
)
@options.pipeline
@click.option(
    "--last",
    type=options.Number("a number of minutes", max=10_000_000),
    metavar="N",
    help=f"Only this many of the latest minutes; {LAST} by default.",
)
@click.option(
    "--since",
    metavar="'YYYY-MM-DD HH:MM'",
    type=read_minute,
    help="From this minute on, by the lines' own clock.",
)
@click.option(
    "--until",
    metavar="'YYYY-MM-DD HH:MM'",
    type=read_minute,
    help="Up to and including this minute.",
)
@options.wide
def counts(
    app: App, pipeline: str | None, last: int | None, since: str | None, until: str | None
) -> int:
    """Show the result: lines per minute.

    A minute without counted lines has no row. Minutes with lines that were counted under other
    rules than today's are marked, and the replay is named that brings them up to date, as far as
    Kafka still holds their records. The number of all offsets under other rules is shown, too.
    """
    if last is None and since is None and until is None:
        last = LAST

    def of(name: str) -> CountsView:
        return results.counts(app.context, name, last=last, since=since, until=until)

    names = app.chosen(pipeline)
    if len(names) == 1:
        app.settings.check(names[0])
        app.out.result(of(names[0]), lambda out, view: _show_counts(out, view, last))
        return EXIT_OK
    each = for_each(names, of)
    several = CountsListView(counts=tuple(each.done), errors=each.views)
    app.out.result(several, lambda out, view: _show_summaries(out, view, last))
    return app.finish(each)


def _show_counts(out: Output, view: CountsView, last: int | None) -> None:
    rules = ["" if row.rule is Rule.TODAY else row.rule for row in view.minutes]
    show_rows(out, view.columns, view.minutes, {"RULES": rules} if any(rules) else None)
    minutes = len({row.log_time for row in view.minutes})
    shown = f"{plural(minutes, 'minute')} shown, {plural(view.total, 'line')}"
    is_cut = last is not None and minutes == last
    out.line(f"{shown}; --last {10 * minutes} shows earlier ones" if is_cut else shown)
    out.sentence(f"counted now: {view.rules}")
    if view.outdated is not None:
        out.sentence(str(view.outdated))
    if view.other_offsets:
        out.sentence(_other_offsets(view))
    if Rule.UNKNOWN in {row.rule for row in view.minutes}:
        out.line("unknown: the minute has lines of pruned segments, whose rules are not kept")


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


def _show_summaries(out: Output, view: CountsListView, last: int | None) -> None:
    """A line for each of several pipelines."""
    rows = []
    for one in view.counts:
        minutes = sorted({row.log_time[:-3] for row in one.minutes})
        ends = [minutes[0], minutes[-1]] if minutes else [ABSENT, ABSENT]
        rules = Rule.OTHER if one.other_offsets else Rule.TODAY
        rows.append([one.pipeline, number(len(minutes)), *ends, number(one.total), rules])
    out.table(
        ["PIPELINE", "MINUTES", "FROM", "UNTIL", "LINES", "RULES"],
        rows,
        numbers=["MINUTES", "LINES"],
    )
    if last is not None:
        out.line(f"the latest {plural(last, 'minute')} of each; see --last")


def show_rows(
    out: Output,
    columns: Columns,
    rows: Sequence[ResultRow],
    more: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Rows of the result, or of what a batch adds to it, as a table.

    Args:
        out: Where to write.
        columns: The columns that the rows have.
        rows: The rows.
        more: Further columns, by header: a cell for each row.
    """
    measures = dict.fromkeys(chain(*MEASURES.values()))
    numbers = ["LINES", *(measure.name.upper() for measure in measures)]
    cells = {
        "MINUTE": [row.log_time[:-3] for row in rows],
        **{
            name.upper(): [_label(out, row.labels[name]) for row in rows] for name in columns.labels
        },
        "LINES": [number(row.log_count) for row in rows],
        **{
            measure.name.upper(): [number(getattr(row, measure.column)) for row in rows]
            for measure in measures
            if rows and getattr(rows[0], measure.column) is not None
        },
        **(more or {}),
    }
    out.table(list(cells), list(zip(*cells.values(), strict=True)), numbers=numbers)


def _label(out: Output, value: str) -> str:
    text = printable(value)
    return text if out.wide else shortened(text, LABEL_WIDTH)


@command(
    "dead-letters",
    examples=[
        "tally dead-letters --batch 42",
        "tally dead-letters error_log --partition alog/0 --text timeout",
        "tally dead-letters error_log --limit 1000 --json | jq -r '.dead_letters[].reason'",
    ],
    document=DeadLettersView,
)
@options.pipeline
@click.option(
    "--batch",
    "batch_id",
    type=options.BATCH,
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
    type=options.read_time,
    metavar="TIME",
    help="Only of batches that were committed at or after this time, such as 2026-11-20T14:05:00Z.",
)
@click.option(
    "--before",
    type=options.read_time,
    metavar="TIME",
    help="Only of batches that were committed before this time; needs one of the others.",
)
@options.limit(50, "Records")
@options.wide
def dead_letters(
    app: App,
    /,
    pipeline: str | None,
    partition: str | None,
    reason: str | None,
    text: str | None,
    limit: int,
    **bounds: Any,
) -> None:
    """List records that could not be understood.

    They are kept with their offset and the reason, and are no part of the result. Unprintable bytes
    are escaped, and long values are cut here; --json has all the bytes that are kept, in base64.

    \b
    REASON is null-value, empty-value, no-match, no-time, time-invalid,
    time-out-of-range or no-level.
    """  # noqa: D301 - click keeps the lines behind a backspace
    name = app.pipeline(pipeline)
    place = None if partition is None else read_partition(partition, "--partition")
    among = Among(partition=place, **bounds)
    view = letters.dead_letters(app.context, name, among, reason=reason, text=text, limit=limit)
    app.out.result(view, lambda out, of: out.records(described.DEAD_LETTER, of.dead_letters))
    if len(view.dead_letters) == limit and not app.out.as_json:
        app.out.line(f"{limit:,} shown, there may be more: --limit N")


@command(
    examples=[
        "tally audit",
        "tally audit error_log --recount",
        "tally audit error_log --json | jq .findings",
    ],
    document=AuditView,
    several=AuditsView,
)
@options.pipeline
@click.option(
    "--recount",
    "from_kafka",
    is_flag=True,
    help="Recount the live segments from Kafka and compare.",
)
@options.wide
def audit(app: App, pipeline: str | None, from_kafka: bool) -> int:
    """Prove that the result is what Kafka held.

    On one consistent snapshot of the ledger: live segments and accepted losses tile each partition
    from its start to its next offset; the result table is the sum of the live contributions; every
    segment adds up; no state contradicts another. With --recount, every live segment that Kafka
    still holds is read again, and its counts and dead letters are compared; what Kafka no longer
    holds is listed as not checkable.
    """
    names = app.chosen(pipeline)
    with _opened(app, from_kafka) as ctx:
        if len(names) == 1:
            view = _audit(app, ctx, app.pipeline(names[0]), from_kafka)
            app.out.result(view, _show_audit)
            return EXIT_OK if view.holds else EXIT_FINDINGS
        each = for_each(names, lambda name: _audit(app, ctx, name, from_kafka))
    holds = all(view.holds for view in each.done)
    app.out.result(
        AuditsView(holds=holds and not each.errors, audits=tuple(each.done), errors=each.views),
        _show_audits,
    )
    code = app.finish(each)
    return code if holds else EXIT_FINDINGS


def _show_audits(out: Output, several: AuditsView) -> None:
    for view in several.audits:
        _show_audit(out, view)


def _opened(app: App, recount: bool) -> AbstractContextManager[Context]:
    return shared_session(app) if recount else nullcontext(app.context)


def _audit(app: App, ctx: Context, pipeline: str, recount: bool) -> AuditView:
    if not recount:
        return audits.audit(ctx, pipeline)
    with app.out.progress(f"recounting {pipeline}", "offsets") as meter:
        return audits.audit(ctx, pipeline, with_recount=True, progress=meter.update)


def _show_audit(out: Output, view: AuditView) -> None:
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
    if len(view.findings) > VIOLATIONS_SHOWN:
        out.line(f"and {len(view.findings) - VIOLATIONS_SHOWN:,} more: --json has all of them")
    out.sentence(f"{view.pipeline}: {view.conclusion}")
