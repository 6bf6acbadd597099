"""``audit``: proving the sentence that Tally promises."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, pipeline_argument
from tally.cli.session import shared_session
from tally.cli.shapes import Shape, range_shape
from tally.cli.ui.values import number
from tally.errors import EXIT_FINDINGS
from tally.formatting import plural
from tally.ledger.invariants import Violation
from tally.pipeline.audit import AuditReport, audit_ledger
from tally.pipeline.recount import Recount, recount, summarize

FINDINGS_SHOWN = 50


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
    help="Count the live segments again from Kafka and compare.",
)
@json_option
@click.pass_context
def audit(context: click.Context, pipeline: str | None, from_kafka: bool) -> None:
    """Prove that the result is what Kafka held.

    On one consistent snapshot of the ledger: live segments and accepted losses tile each partition
    from its start to its next offset; the result table is the sum of the live contributions,
    minute by minute; every segment adds up; no state contradicts another. With --recount,
    everything live that Kafka still holds is read again and compared per partition and minute; what
    it no longer holds is named as not checkable.

    Exit code 1 when something is found.
    """
    app = context.ensure_object(App)
    name = app.pipeline(pipeline)
    report = audit_ledger(app.context, name)
    counted = _count_again(app, name) if from_kafka else None
    findings = [*report.findings, *(counted.findings if counted else ())]
    if app.out.as_json:
        app.out.document(audit_shape(report, counted))
    else:
        _show(app, report, counted, findings)
    context.exit(EXIT_FINDINGS if findings else 0)


def _count_again(app: App, name: str) -> Recount:
    with (
        shared_session(app) as ctx,
        app.out.progress("counting again", "offsets") as meter,
    ):
        return recount(ctx, name, meter.update)


def _show(
    app: App, report: AuditReport, counted: Recount | None, findings: list[Violation]
) -> None:
    app.out.line(
        f"{report.pipeline}: {plural(report.partitions, 'partition')}, "
        f"{plural(report.segments, 'live segment')}, {plural(report.records, 'record')}, "
        f"{plural(report.minutes, 'minute')}, {number(report.matched)} matched"
    )
    if counted is not None:
        app.out.line(
            f"counted again from Kafka: {plural(counted.segments, 'segment')}, "
            f"{plural(counted.offsets, 'offset')}, {plural(counted.records, 'record')}"
        )
        for cause, offsets in summarize(counted.unchecked):
            app.out.line(f"not checkable: {plural(offsets, 'offset')} of {cause}")
    if findings:
        app.out.table(
            ["CHECK", "WHERE", "WHAT"],
            [[f.check, f.where, f.detail] for f in findings[:FINDINGS_SHOWN]],
        )
    if len(findings) > FINDINGS_SHOWN:
        app.out.line(f"and {len(findings) - FINDINGS_SHOWN:,} more: --json has all of them")
    app.out.line(conclusion(report, counted))


def conclusion(report: AuditReport, counted: Recount | None) -> str:
    """The audit in one sentence, which claims no more than was looked at."""
    found = len(report.findings) + (len(counted.findings) if counted else 0)
    if found:
        return f"{plural(found, 'finding')}: see docs/runbook.md, audit-finding"
    if counted is None:
        return "the ledger is consistent (--recount compares it with Kafka)"
    if counted.unchecked:
        return "the ledger is consistent and agrees with all that Kafka still holds"
    return "the ledger is consistent and agrees with Kafka, record for record"


def audit_shape(report: AuditReport, counted: Recount | None) -> Shape:
    """What ``--json`` carries."""
    findings = [*report.findings, *(counted.findings if counted else ())]
    return {
        "pipeline": report.pipeline,
        "holds": not findings,
        "partitions": report.partitions,
        "segments": report.segments,
        "records": report.records,
        "minutes": report.minutes,
        "matched": report.matched,
        "findings": [{"check": f.check, "where": f.where, "detail": f.detail} for f in findings],
        "recount": _recount_shape(counted) if counted else None,
    }


def _recount_shape(counted: Recount) -> Shape:
    return {
        "complete": not counted.unchecked,
        "segments": counted.segments,
        "offsets": counted.offsets,
        "records": counted.records,
        "not_checkable": [{**range_shape(u.range), "cause": u.cause} for u in counted.unchecked],
    }
