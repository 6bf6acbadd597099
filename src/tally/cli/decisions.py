"""``losses``, ``topics``, ``abandon``, ``erase``, ``prune``: what only an operator can decide."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import Group, command
from tally.cli.output import moment
from tally.config.values import parse_start
from tally.errors import UsageError
from tally.formatting import plural
from tally.ledger.decisions import AdoptionView
from tally.maintenance import decisions
from tally.maintenance import erase as erasing
from tally.maintenance import prune as retention
from tally.model import BatchKind, OffsetRange
from tally.reading import columns
from tally.reading.dead_letters import read_partition

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


def _parse_begin(text: str) -> tuple[int, int]:
    """``3=250``: a partition and an offset."""
    found = re.fullmatch(r"(\d{1,9})=(\d{1,18})", text)
    if found is None:
        raise ValueError(f"{text!r} is no partition with its offset, such as 3=250")
    return int(found[1]), int(found[2])


@topics.command(document=AdoptionView)
@click.argument("pipeline", shell_complete=options.complete_pipelines)
@click.argument("topic", shell_complete=options.complete_topics)
@options.reason
@click.option(
    "--start",
    type=options.Text("time", parse_start),
    default="earliest",
    help="Where counting of the new generation begins: earliest, latest, or a time with its zone.",
)
@click.option(
    "--offset",
    "offsets",
    metavar="NUMBER=OFFSET",
    multiple=True,
    type=options.Text("number=offset", _parse_begin),
    help="Begin at this offset of a partition; for each partition, in place of --start.",
)
@options.dry_run
@options.yes
def adopt(app: App, /, pipeline: str, topic: str, start: Any, **decision: Any) -> None:
    """Follow a topic's new generation from now on.

    What was counted from the old generation stays in the result. Its open losses, and what was
    planned of it and never counted, are accepted as lost; with --start earliest also what the new
    generation has lost already. Shows all of it, where counting would begin, and by the records'
    timestamps how many of them would be counted twice or never if they are copies; and asks.

    Examples:
        tally topics adopt error_log alog --reason 're-created with 12 partitions' --dry-run
        tally topics adopt error_log alog --start 2026-11-20T14:00:00Z --reason 'moved cluster'
        tally topics adopt error_log alog --offset 0=300 --offset 1=250 --reason 'moved cluster'
    """
    out = app.out
    reason, dry_run = decision["reason"], decision["dry_run"]
    if decision["offsets"]:
        if start != "earliest":
            raise UsageError("--start and --offset exclude each other", next_step="leave one out")
        start = dict(decision["offsets"])
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
        out.line(
            "this id was followed before: counting resumes where it stopped, behind what was "
            f"accepted as lost there (tally losses list {pipeline})"
        )
    if view.counted_through is not None:
        out.line(
            f"counted through {moment(view.counted_through)}; by their timestamps "
            f"{plural(view.counted_twice or 0, 'record')} would be counted twice, and "
            f"{plural(view.never_counted or 0, 'record')} never, if they are copies of the old ones"
        )
    if view.behind:
        out.note(
            f"no record of that moment or later in {', '.join(map(str, view.behind))}: of copies "
            "that still come all would be counted twice; wait until they are there"
        )
    if not dry_run:
        app.confirm(f"Follow {topic} with the id {view.topic_id} from now on?", yes=decision["yes"])
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


@command(document=erasing.ErasedView)
@options.pipeline
@click.option(
    "--partition",
    required=True,
    metavar="TOPIC/NUMBER",
    help="Of this partition, in all generations of its topic.",
)
@click.option("--from", "from_offset", required=True, type=options.OFFSET, help="First offset.")
@click.option(
    "--until",
    "until_offset",
    type=options.OFFSET,
    help="Offset after the last one; by default only the first.",
)
@options.reason
@options.dry_run
@options.yes
def erase(
    app: App,
    pipeline: str | None,
    partition: str,
    from_offset: int,
    until_offset: int | None,
    **decision: Any,
) -> None:
    """Erase the text of lines that must go.

    Dead letters and kept lines lose their text; offsets, minutes and counts stay, and so does the
    audit's proof. The ledger keeps the offsets, who erased them and why: write no part of the text
    into the reason. A replay of these offsets stores no text, either. What Kafka has of them goes
    with its retention or by `tally kafka delete-records`; values of labels are part of the counts.

    Examples:
        tally erase error_log --partition alog/0 --from 300 --reason 'ticket 17' --dry-run
        tally erase error_log --partition alog/0 --from 300 --until 310 --reason 'ticket 17' --yes
    """
    name = app.pipeline(pipeline)
    until = from_offset + 1 if until_offset is None else until_offset
    if until <= from_offset:
        raise UsageError(
            f"--until {until} is not behind --from {from_offset}",
            next_step="--until names the offset after the last one",
        )
    erased = OffsetRange(
        partition=read_partition(partition, "--partition"),
        from_offset=from_offset,
        until_offset=until,
    )
    reason, dry_run = decision["reason"], decision["dry_run"]
    view = erasing.erase(app.context, name, erased, reason=reason, dry_run=True)
    if not dry_run:
        said = f"{plural(view.dead_letters, 'dead letter')} and {plural(view.lines, 'kept line')}"
        app.confirm(f"Erase the text of {said} of {erased}?", yes=decision["yes"])
        view = erasing.erase(app.context, name, erased, reason=reason)
    app.out.document(view)
    verb = "would lose" if dry_run else "lost"
    app.out.line(
        f"{erased}: {plural(view.dead_letters, 'dead letter')} and "
        f"{plural(view.lines, 'kept line')} {verb} their text"
    )


@command(document=erasing.ErasuresView)
@options.pipeline
@options.wide
def erasures(app: App, pipeline: str | None) -> None:
    """List what was erased by request, oldest first.

    Examples:
        tally erasures error_log
    """
    view = erasing.erasures(app.context, app.pipeline(pipeline))
    app.out.document(view)
    app.out.records(columns.ERASURE, view.erasures)


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
