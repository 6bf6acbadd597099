"""``losses``: list records that are gone from Kafka, and accept their loss."""

from dataclasses import replace

import click

from tally.cli import completion
from tally.cli.app import App
from tally.cli.command import Command, Group
from tally.cli.options import (
    PARTITION,
    dry_run_option,
    json_option,
    pass_app,
    pipeline_argument,
    reason_option,
    wide_option,
    yes_option,
)
from tally.cli.ui.values import moment, number
from tally.errors import UsageError
from tally.formatting import ABSENT, plural
from tally.losses import losses as use_case
from tally.losses.losses import LossDecision, LossesRequest, LossesView, LossView


@click.group(cls=Group)
def losses() -> None:
    """Records that are gone from Kafka.

    Kafka's retention has passed the committed offset (expired), Kafka ends before it (truncated),
    or offsets of a range that was read have no record (missing). The partition is blocked; nothing
    is skipped silently. Restore the records, or accept the loss; the ledger keeps who did, and why.
    """


@losses.command("list", cls=Command, examples=["tally losses list error_log --open"])
@pipeline_argument
@click.option("--open", "only_open", is_flag=True, help="Only those that wait for a decision.")
@wide_option
@json_option
@pass_app
def list_losses(app: App, pipeline: str | None, only_open: bool) -> None:
    """List lost ranges, oldest first."""
    request = LossesRequest(pipeline=app.pipeline(pipeline), only_open=only_open)
    view = use_case.losses(app.context, request)
    if app.out.as_json:
        app.out.view(view)
    else:
        _show(app, view)


@losses.command(
    "accept",
    cls=Command,
    examples=[
        "tally losses accept error_log --reason 'retention, ticket 17' --dry-run",
        "tally losses accept error_log --topic alog --partition 3 --reason 'disk died' --yes",
    ],
)
@pipeline_argument
@click.option(
    "--topic", metavar="NAME", shell_complete=completion.topics, help="Only losses of this topic."
)
@click.option(
    "--partition",
    type=PARTITION,
    metavar="NUMBER",
    help="Only losses of this partition; needs --topic.",
)
@reason_option
@dry_run_option
@yes_option
@json_option
@pass_app
def accept(
    app: App,
    pipeline: str | None,
    topic: str | None,
    partition: int | None,
    reason: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Accept open losses, so that counting continues.

    After expired records, counting continues at the first offset that Kafka holds; after a
    truncation, at the committed offset. A range with missing offsets is read again, and the records
    that it has are counted.

    Shows what would be accepted and asks. If a loss has grown meanwhile, or was decided by another
    operator, nothing is changed.
    """
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic", next_step="name the topic as well")
    name = app.pipeline(pipeline)
    request = LossesRequest(pipeline=name, only_open=True, topic=topic, partition=partition)
    seen = use_case.losses(app.context, request)
    if not seen.losses:
        raise UsageError(
            f"pipeline {name} has no such open loss",
            next_step=f"tally plan {name}, which records losses, or: tally losses list {name}",
        )
    if not app.out.as_json:
        _show(app, seen)
    if not dry_run:
        offsets = plural(sum(loss.offsets for loss in seen.losses), "offset")
        app.confirm(f"Accept the loss in {offsets}?", yes=yes)
    use_case.decide_losses(
        app.context, LossDecision(seen=seen, accept=True, reason=reason, dry_run=dry_run)
    )
    if app.out.as_json:
        app.out.view(seen if dry_run else _as_they_are(app, seen))
        return
    verb = "would be accepted" if dry_run else "accepted"
    app.out.line(f"{plural(len(seen.losses), 'range')} {verb}")


def _as_they_are(app: App, seen: LossesView) -> LossesView:
    """The same losses, as the ledger has them after the decision."""
    ids = {loss.lost_range_id for loss in seen.losses}
    now = use_case.losses(app.context, LossesRequest(pipeline=seen.pipeline))
    return replace(now, losses=tuple(x for x in now.losses if x.lost_range_id in ids))


def _show(app: App, view: LossesView) -> None:
    app.out.table(
        ["PARTITION", "RANGE", "OFFSETS", "CAUSE", "STATE", "DETECTED", "DECIDED", "BY", "REASON"],
        [_row(loss) for loss in view.losses],
        numbers=["OFFSETS"],
        texts=["CAUSE"],
        extra=["OFFSETS", "DECIDED", "BY", "REASON"],
    )


def _row(loss: LossView) -> list[str]:
    return [
        loss.place,
        loss.span,
        number(loss.offsets),
        str(loss.cause),
        loss.state,
        moment(loss.detected_at),
        moment(loss.decided_at),
        loss.decided_by or ABSENT,
        loss.reason or ABSENT,
    ]
