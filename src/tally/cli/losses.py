"""``losses``: records that are gone from Kafka, and accepting that."""

import click

from tally.app import decisions
from tally.app.losses import LossesView, LossView
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    dry_run_option,
    json_option,
    pass_app,
    pipeline_argument,
    reason_option,
    yes_option,
)
from tally.cli.ui.values import moment, number
from tally.errors import UsageError
from tally.formatting import ABSENT, plural
from tally.ledger.decisions import (
    LossRecord,
)


@click.group()
def losses() -> None:
    """Records that are gone from Kafka.

    Retention has passed the ledger's offset (expired), Kafka ends before it (truncated), or a
    range was read and had holes (missing): the partition is blocked, and nothing is skipped
    quietly. Restore the records, or accept the loss; the ledger keeps who did and why.
    """


@losses.command("list", cls=Command, examples=["tally losses list error_log --open"])
@pipeline_argument
@click.option("--open", "only_open", is_flag=True, help="Only those that nobody has decided.")
@json_option
@pass_app
def list_losses(app: App, pipeline: str | None, only_open: bool) -> None:
    """List lost ranges, oldest first."""
    name = app.pipeline(pipeline)
    found = decisions.list_losses(app.context, name, only_open=only_open)
    if app.out.as_json:
        app.out.view(LossesView.of(name, found))
    else:
        _show_losses(app, found)


@losses.command(
    "accept",
    cls=Command,
    examples=[
        "tally losses accept error_log --reason 'retention, ticket 17' --dry-run",
        "tally losses accept error_log --topic alog --partition 3 --reason 'disk died' --yes",
    ],
)
@pipeline_argument
@click.option("--topic", metavar="NAME", help="Only losses of this topic.")
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Only losses of this partition; needs --topic.",
)
@reason_option
@dry_run_option
@yes_option
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
    """Accept open losses, and let counting go on.

    Behind what has expired; at the ledger's offset after a truncation; a range with missing
    offsets is read again, and what is there is counted.

    Shows what would be accepted and asks. Exactly what was shown is accepted: if a loss grows
    meanwhile, or somebody else decides it, nothing is changed.
    """
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic", next_step="name the topic as well")
    name = app.pipeline(pipeline)
    open_losses = decisions.list_losses(app.context, name, only_open=True)
    seen = choose_losses(open_losses, topic, partition)
    if not seen:
        raise UsageError(
            f"pipeline {name} has no such open loss",
            next_step=f"tally losses list {name}",
        )
    _show_losses(app, seen)
    if not dry_run:
        offsets = plural(sum(loss.range.offsets for loss in seen), "offset")
        app.confirm(f"Accept the loss in {offsets}?", yes=yes)

    decisions.settle_losses(app.context, name, seen, accept=True, reason=reason, dry_run=dry_run)
    verb = "would be accepted" if dry_run else "accepted"
    app.out.line(f"{plural(len(seen), 'range')} {verb}")


def choose_losses(
    losses: list[LossRecord], topic: str | None, partition: int | None
) -> list[LossRecord]:
    """Those of the topic and the partition, where one is named."""
    return [
        loss
        for loss in losses
        if topic in {None, loss.range.partition.topic}
        and partition in {None, loss.range.partition.partition}
    ]


def _show_losses(app: App, found: list[LossRecord]) -> None:
    app.out.table(
        ["PARTITION", "RANGE", "OFFSETS", "CAUSE", "STATE", "DETECTED", "DECIDED", "BY", "REASON"],
        [_row(LossView.loss(loss)) for loss in found],
        numbers=["OFFSETS"],
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
