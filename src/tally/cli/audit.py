"""``audit``: prove that the result is what Kafka held."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import click

from tally.app.each import for_each
from tally.audit import audit as use_case
from tally.audit.audit import AuditsView, AuditView
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, pipeline_argument, wide_option
from tally.cli.session import shared_session
from tally.cli.ui.values import number
from tally.context import Context
from tally.errors import EXIT_FINDINGS
from tally.formatting import plural

VIOLATIONS_SHOWN = 50


@click.command(
    cls=Command,
    examples=[
        "tally audit",
        "tally audit error_log --recount",
        "tally audit error_log --json | jq .findings",
    ],
)
@pipeline_argument
@click.option(
    "--recount",
    "from_kafka",
    is_flag=True,
    help="Recount the live segments from Kafka and compare.",
)
@wide_option
@json_option
@click.pass_context
def audit(context: click.Context, pipeline: str | None, from_kafka: bool) -> None:
    """Prove that the result is what Kafka held.

    On one consistent snapshot of the ledger: live segments and accepted losses tile each partition
    from its start to its next offset; the result table is the sum of the live contributions; every
    segment adds up; no state contradicts another. With --recount, every live segment that Kafka
    still holds is read again, and its counts and dead letters are compared; what Kafka no longer
    holds is listed as not checkable.
    """
    app = context.ensure_object(App)
    names = app.chosen(pipeline)
    if len(names) > 1:
        context.exit(_audit_all(app, names, recount=from_kafka))
    with _opened(app, from_kafka) as ctx:
        view = _audit(app, ctx, app.pipeline(names[0]), with_recount=from_kafka)
    if app.out.as_json:
        app.out.view(view)
    else:
        _show(app, view)
    context.exit(0 if view.holds else EXIT_FINDINGS)


def _audit_all(app: App, names: Sequence[str], *, recount: bool) -> int:
    """Audit several pipelines; returns the exit code."""
    with _opened(app, recount) as ctx:
        each = for_each(names, lambda name: _audit(app, ctx, name, with_recount=recount))
    holds = all(view.holds for view in each.done)
    if app.out.as_json:
        app.out.view(
            AuditsView(holds=holds and not each.errors, audits=tuple(each.done), errors=each.views)
        )
    else:
        for view in each.done:
            _show(app, view)
    code = app.finish(each)
    return code if holds else EXIT_FINDINGS


def _opened(app: App, recount: bool) -> AbstractContextManager[Context]:
    return shared_session(app) if recount else nullcontext(app.context)


def _audit(app: App, ctx: Context, name: str, *, with_recount: bool) -> AuditView:
    if not with_recount:
        return use_case.audit(ctx, name)
    with app.out.progress(f"recounting {name}", "offsets") as meter:
        return use_case.audit(ctx, name, with_recount=True, progress=meter.update)


def _show(app: App, view: AuditView) -> None:
    app.out.sentence(
        f"{view.pipeline}: {plural(view.partitions, 'partition')}, "
        f"{plural(view.segments, 'live segment')}, {plural(view.records, 'record')}, "
        f"{plural(view.minutes, 'minute')}, {number(view.matched)} matched"
    )
    if (counted := view.recount) is not None:
        app.out.line(
            f"recounted from Kafka: {plural(counted.segments, 'segment')}, "
            f"{plural(counted.offsets, 'offset')}, {plural(counted.records, 'record')}"
        )
        for cause, offsets in counted.unchecked_offsets:
            app.out.sentence(f"not checkable: {plural(offsets, 'offset')} of {cause}")
        for gap in counted.before_start:
            app.out.sentence(f"before the start, and not counted: {gap}")
    if view.findings:
        app.out.table(
            ["CHECK", "WHERE", "WHAT"],
            [[f.check, f.where, f.detail] for f in view.findings[:VIOLATIONS_SHOWN]],
            texts=["CHECK", "WHERE", "WHAT"],
        )
    if len(view.findings) > VIOLATIONS_SHOWN:
        app.out.line(f"and {len(view.findings) - VIOLATIONS_SHOWN:,} more: --json has all of them")
    app.out.sentence(f"{view.pipeline}: {view.conclusion}")
