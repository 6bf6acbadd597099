"""``losses``, ``topics``, ``abandon`` and ``prune``: what only an operator can decide."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Final

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import Group, command
from tally.errors import UsageError
from tally.formatting import plural
from tally.ledger.decisions import AdoptionView
from tally.maintenance import decisions
from tally.maintenance import prune as retention
from tally.model import BatchKind
from tally.reading import columns

_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
BEGINS: Final = columns.Column("offset", "", "COUNTING BEGINS AT", columns.OFFSET)


@click.group(cls=Group)
def losses() -> None:
    """Records that are gone from Kafka.

    Kafka's retention has passed the committed offset (expired), Kafka ends before it (truncated),
    or offsets of a range that was read have no record (missing). The partition is blocked; nothing
    is skipped silently. Restore the records, or accept the loss; the ledger keeps who did, and why.
    """


@losses.command("list", document=decisions.LossesView)
@options.pipeline
@click.option("--open", "only_open", is_flag=True, help="Only those that wait for a decision.")
@options.wide
def list_losses(app: App, pipeline: str | None, only_open: bool) -> None:
    """List lost ranges, oldest first.

    Examples:
        tally losses list error_log --open
    """
    view = decisions.losses(app.context, app.pipeline(pipeline), only_open=only_open)
    app.out.document(view)
    app.out.records(columns.LOSS, view.losses)


@losses.command(document=decisions.LossesView)
@options.pipeline
@options.topic_option(help="Only losses of this topic.")
@options.partition_option(help="Only losses of this partition; needs --topic.")
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

    Examples:
        tally losses accept error_log --reason 'retention, ticket 17' --dry-run
        tally losses accept error_log --topic alog --partition 3 --reason 'disk died' --yes
    """
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic", next_step="name the topic as well")
    name = app.pipeline(pipeline)
    seen = decisions.losses(app.context, name, only_open=True, topic=topic, partition=partition)
    if not seen.losses:
        raise UsageError(
            f"pipeline {name} has no such open loss",
            next_step=f"tally plan {name}, which records losses, or: tally losses list {name}",
        )
    app.out.records(columns.LOSS, seen.losses)
    if not dry_run:
        offsets = plural(sum(loss.range.offsets for loss in seen.losses), "offset")
        app.confirm(f"Accept the loss in {offsets}?", yes=yes)
    decisions.decide_losses(app.context, seen, accept=True, reason=reason, dry_run=dry_run)
    if app.out.as_json and not dry_run:  # as the ledger has them after the decision
        ids = {loss.lost_range_id for loss in seen.losses}
        now = decisions.losses(app.context, name).losses
        seen = replace(seen, losses=tuple(loss for loss in now if loss.lost_range_id in ids))
    app.out.document(seen)
    verb = "would be accepted" if dry_run else "accepted"
    app.out.line(f"{plural(len(seen.losses), 'range')} {verb}")


@click.group(cls=Group)
def topics() -> None:
    """Topics that were deleted and created again.

    A topic with the same name and another id is a new generation: its offsets denote other records.
    It is blocked until an operator adopts it.
    """


@topics.command(document=AdoptionView)
@click.argument("pipeline", shell_complete=options.complete_pipelines)
@click.argument("topic", shell_complete=options.complete_topics)
@options.reason
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
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

    Examples:
        tally topics adopt error_log alog --reason 're-created with 12 partitions' --dry-run
        tally topics adopt error_log alog --start latest --reason 'moved cluster' --yes
    """
    out = app.out
    view = decisions.preview_adoption(app.context, pipeline, topic, start=start, reason=reason)
    out.line(f"{topic} with the id {view.topic_id} on cluster {view.cluster_id}")
    place = replace(columns.PLACE, of=lambda begin: f"{topic}/{begin.partition}")
    out.records([place, BEGINS], view.partitions)
    for one in view.lost:
        out.line(
            f"accepted as lost with it: {one.range} of the id {one.topic_id}, "
            f"{plural(one.range.offsets, 'offset')} ({one.cause})"
        )
    if view.was_followed_before:
        out.line("this id was followed before: counting resumes where it stopped")
    if not dry_run:
        app.confirm(f"Follow {topic} with the id {view.topic_id} from now on?", yes=yes)
        view = decisions.adopt(app.context, view, reason=reason)
    out.document(view)
    offsets = sum(one.range.offsets for one in view.lost)
    accepted = f"; {plural(offsets, 'offset')} accepted as lost" if offsets else ""
    out.line(f"{topic} {'is' if view.adopted else 'would be'} adopted{accepted}")


@command(document=decisions.AbandonedView)
@options.batch
@options.reason
@options.dry_run
def abandon(app: App, batch_id: int, reason: str, dry_run: bool) -> None:
    """Abandon a planned batch.

    It counts nothing, and an attempt that still runs can no longer commit it. The offsets of an
    ingest batch are planned again. What a batch of a replay was to replace stays in the result. A
    committed batch cannot be abandoned.

    Examples:
        tally abandon 42 --reason 'planned against the wrong cluster' --dry-run
        tally abandon 42 --reason 'planned against the wrong cluster'
    """
    view = decisions.abandon(app.context, batch_id, reason=reason, dry_run=dry_run)
    app.out.document(view)
    for r in view.ranges:
        app.out.line(str(r))
    verb = "would be" if dry_run else "is"
    stays = (
        f"{plural(view.offsets, 'offset')} stay uncounted until the next plan"
        if view.kind is BatchKind.INGEST
        else "what it was to replace stays as it is"
    )
    app.out.line(f"batch {batch_id} of {view.pipeline} {verb} abandoned; {stays}")


def _parse_age(text: str) -> timedelta:
    """``30d``, ``12h`` or ``4w``."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text)
    if found is None:
        raise ValueError(f"{text!r} is not an age; write 30d, 12h or 4w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


@command(document=retention.PruneView)
@options.pipeline
@click.option(
    "--older-than",
    required=True,
    type=options.Text("age", _parse_age),
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

    Examples:
        tally prune --older-than 30d --dry-run
        tally prune error_log --older-than 30d
    """
    name = app.pipeline(pipeline)
    with app.out.progress("pruning", "partitions") as meter:
        view = retention.prune(
            app.context, name, older_than, progress=meter.update, dry_run=dry_run
        )
    app.out.document(view)
    verb = "would be" if dry_run else "are"
    app.out.line(
        f"{view.pipeline}: {plural(view.segments, 'segment')} of "
        f"{plural(view.partitions, 'partition')} {verb} folded, {plural(view.rows, 'row')} {verb} "
        "deleted"
    )
