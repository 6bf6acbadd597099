"""``losses``, ``topics``, ``abandon`` and ``prune``: what only an operator can decide."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Final

import click

from tally.cli import completion, options
from tally.cli.app import App
from tally.cli.command import Group, command
from tally.cli.ui.output import Output
from tally.errors import UsageError
from tally.formatting import plural
from tally.losses import losses as lost
from tally.losses import topics as generations
from tally.losses.losses import LossesView
from tally.losses.topics import AdoptionView
from tally.maintenance import prune as retention
from tally.maintenance.abandon import AbandonedView
from tally.maintenance.abandon import abandon as abandon_batch
from tally.maintenance.prune import PruneView
from tally.model import BatchKind
from tally.reading import columns
from tally.reading.columns import OFFSET, Column

_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}


@click.group(cls=Group)
def losses() -> None:
    """Records that are gone from Kafka.

    Kafka's retention has passed the committed offset (expired), Kafka ends before it (truncated),
    or offsets of a range that was read have no record (missing). The partition is blocked; nothing
    is skipped silently. Restore the records, or accept the loss; the ledger keeps who did, and why.
    """


@losses.command("list", examples=["tally losses list error_log --open"], document=LossesView)
@options.pipeline
@click.option("--open", "only_open", is_flag=True, help="Only those that wait for a decision.")
@options.wide
def list_losses(app: App, pipeline: str | None, only_open: bool) -> None:
    """List lost ranges, oldest first."""
    view = lost.losses(app.context, app.pipeline(pipeline), only_open=only_open)
    app.out.result(view, _show_losses)


@losses.command(
    examples=[
        "tally losses accept error_log --reason 'retention, ticket 17' --dry-run",
        "tally losses accept error_log --topic alog --partition 3 --reason 'disk died' --yes",
    ],
    document=LossesView,
)
@options.pipeline
@click.option(
    "--topic", metavar="NAME", shell_complete=completion.topics, help="Only losses of this topic."
)
@click.option(
    "--partition",
    type=options.PARTITION,
    metavar="NUMBER",
    help="Only losses of this partition; needs --topic.",
)
@options.reason
@options.dry_run
@options.yes
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
    seen = lost.losses(app.context, name, only_open=True, topic=topic, partition=partition)
    if not seen.losses:
        raise UsageError(
            f"pipeline {name} has no such open loss",
            next_step=f"tally plan {name}, which records losses, or: tally losses list {name}",
        )
    if not app.out.as_json:
        _show_losses(app.out, seen)
    if not dry_run:
        offsets = plural(sum(loss.range.offsets for loss in seen.losses), "offset")
        app.confirm(f"Accept the loss in {offsets}?", yes=yes)
    lost.decide_losses(app.context, seen, accept=True, reason=reason, dry_run=dry_run)
    if app.out.as_json:
        app.out.view(seen if dry_run else _as_they_are(app, seen))
        return
    verb = "would be accepted" if dry_run else "accepted"
    app.out.line(f"{plural(len(seen.losses), 'range')} {verb}")


def _as_they_are(app: App, seen: LossesView) -> LossesView:
    """The same losses, as the ledger has them after the decision."""
    ids = {loss.lost_range_id for loss in seen.losses}
    now = lost.losses(app.context, seen.pipeline)
    return replace(now, losses=tuple(x for x in now.losses if x.lost_range_id in ids))


def _show_losses(out: Output, view: LossesView) -> None:
    out.records(columns.LOSS, view.losses)


@click.group(cls=Group)
def topics() -> None:
    """Topics that were deleted and created again.

    A topic with the same name and another id is a new generation: its offsets denote other records.
    It is blocked until an operator adopts it.
    """


@topics.command(
    examples=[
        "tally topics adopt error_log alog --reason 're-created with 12 partitions' --dry-run",
        "tally topics adopt error_log alog --start latest --reason 'moved cluster' --yes",
    ],
    document=AdoptionView,
)
@click.argument("pipeline", shell_complete=completion.pipelines)
@click.argument("topic", shell_complete=completion.topics)
@options.reason
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where counting of the new generation begins.",
)
@options.dry_run
@options.yes
def adopt(
    app: App, pipeline: str, topic: str, reason: str, start: str, dry_run: bool, yes: bool
) -> None:
    """Follow a topic's new generation from now on.

    What was counted from the old generation stays in the result. Its open losses, and what was
    planned of it and never counted, are accepted as lost; with --start earliest also what the new
    generation has lost already. Shows all of it, and where counting would begin, and asks.
    """
    view = generations.preview_adoption(app.context, pipeline, topic, start=start, reason=reason)
    if not app.out.as_json:
        _show_adoption(app.out, view)
    if not dry_run:
        app.confirm(f"Follow {topic} with the id {view.topic_id} from now on?", yes=yes)
        view = generations.adopt(app.context, view, reason=reason)
    app.out.result(view, _show_adopted)


def _show_adoption(out: Output, view: AdoptionView) -> None:
    out.line(f"{view.topic} with the id {view.topic_id} on cluster {view.cluster_id}")
    starts = (
        Column("partition", "", "PARTITION", of=lambda start: f"{view.topic}/{start.partition}"),
        Column("offset", "", "COUNTING BEGINS AT", OFFSET),
    )
    out.records(starts, view.partitions)
    for one in view.lost:
        out.line(
            f"accepted as lost with it: {one.range} of the id {one.topic_id}, "
            f"{plural(one.range.offsets, 'offset')} ({one.cause})"
        )
    if view.was_followed_before:
        out.line("this id was followed before: counting resumes where it stopped")


def _show_adopted(out: Output, view: AdoptionView) -> None:
    offsets = sum(one.range.offsets for one in view.lost)
    accepted = f"; {plural(offsets, 'offset')} accepted as lost" if offsets else ""
    out.line(f"{view.topic} {'is' if view.adopted else 'would be'} adopted{accepted}")


@command(
    examples=[
        "tally abandon 42 --reason 'planned against the wrong cluster' --dry-run",
        "tally abandon 42 --reason 'planned against the wrong cluster'",
    ],
    document=AbandonedView,
)
@options.batch
@options.reason
@options.dry_run
def abandon(app: App, batch_id: int, reason: str, dry_run: bool) -> None:
    """Abandon a planned batch.

    It counts nothing, and an attempt that still runs can no longer commit it. The offsets of an
    ingest batch are planned again. What a batch of a replay was to replace stays in the result. A
    committed batch cannot be abandoned.
    """
    view = abandon_batch(app.context, batch_id, reason=reason, dry_run=dry_run)
    app.out.result(view, _show_abandoned)


def _show_abandoned(out: Output, view: AbandonedView) -> None:
    for r in view.ranges:
        out.line(str(r))
    out.line(
        f"batch {view.batch_id} of {view.pipeline} {'would be' if view.dry_run else 'is'} "
        "abandoned; "
        + (
            f"{plural(view.offsets, 'offset')} stay uncounted until the next plan"
            if view.kind is BatchKind.INGEST
            else "what it was to replace stays as it is"
        )
    )


def _parse_age(_: click.Context, __: click.Parameter, value: str) -> timedelta:
    """``30d``, ``12h`` or ``4w``."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not an age; write 30d, 12h or 4w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


@command(
    examples=["tally prune --older-than 30d --dry-run", "tally prune error_log --older-than 30d"],
    document=PruneView,
)
@options.pipeline
@click.option(
    "--older-than",
    required=True,
    metavar="AGE",
    callback=_parse_age,
    help="Only what was committed before this age: 30d, 12h or 4w.",
)
@options.dry_run
def prune(app: App, pipeline: str | None, older_than: timedelta, dry_run: bool) -> None:
    """Fold old contributions that Kafka can no longer serve.

    What was counted from records that Kafka has deleted can no longer be replaced: its ranges are
    joined and its counts become one sum per minute. The result does not change, and the audit still
    verifies it. Also deletes the dead letters of what is folded, superseded counts and abandoned
    batches. What an open replay is to replace is kept, and so are decisions about losses and
    topics. It may run while batches are counted.
    """
    name = app.pipeline(pipeline)
    with app.out.progress("pruning", "partitions") as meter:
        view = retention.prune(
            app.context, name, older_than, progress=meter.update, dry_run=dry_run
        )
    verb = "would be" if dry_run else "are"
    app.out.result(
        view,
        lambda out, of: out.line(
            f"{of.pipeline}: {plural(of.segments, 'segment')} of "
            f"{plural(of.partitions, 'partition')} {verb} folded, "
            f"{plural(of.rows, 'row')} {verb} deleted"
        ),
    )
