"""``losses``, ``topics``, ``abandon``: what only a person decides."""

from dataclasses import replace

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    batch_argument,
    dry_run_option,
    json_option,
    pass_app,
    pipeline_argument,
    reason_option,
    yes_option,
)
from tally.cli.shapes import loss_shape
from tally.cli.values import ABSENT, moment, number, span
from tally.config.pipeline import Pipeline
from tally.errors import MissingTopicError, UsageError
from tally.formatting import plural
from tally.ledger import batches
from tally.ledger.decisions import (
    Adoption,
    LossRecord,
    accept_losses,
    adopt_topic,
    find_losses,
)
from tally.ledger.positions import lock_pipeline
from tally.model import Batch, BatchKind, KafkaSnapshot, TopicPartition
from tally.mysql.transactions import Transaction
from tally.planning.ingest import first_offsets


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
    with app.context.database.transaction(read_only=True) as tx:
        found = find_losses(tx, name, only_open=only_open)
    if app.out.as_json:
        app.out.document({"pipeline": name, "losses": [loss_shape(loss) for loss in found]})
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
    settings = app.settings.pipeline(app.pipeline(pipeline))
    with app.context.database.transaction(read_only=True) as tx:
        open_losses = find_losses(tx, settings.name, only_open=True)
    seen = choose_losses(open_losses, topic, partition)
    if not seen:
        raise UsageError(
            f"pipeline {settings.name} has no such open loss",
            next_step=f"tally losses list {settings.name}",
        )
    _show_losses(app, seen)
    if not dry_run:
        offsets = plural(sum(loss.range.offsets for loss in seen), "offset")
        app.confirm(f"Accept the loss in {offsets}?", yes=yes)

    def decide(tx: Transaction) -> None:
        lock_pipeline(tx, settings.name, settings.table)
        accept_losses(tx, settings.name, seen, by=app.context.requester.name, reason=reason)

    app.context.database.run(decide, dry_run=dry_run)
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


@click.group()
def topics() -> None:
    """Topics that were deleted and created again.

    A topic with the same name and another id is another topic, and its offsets mean something
    else. It is blocked until somebody adopts it.
    """


@topics.command(
    cls=Command,
    examples=[
        "tally topics adopt error_log alog --reason 're-created with 12 partitions' --dry-run",
        "tally topics adopt error_log alog --start latest --reason 'moved cluster' --yes",
    ],
)
@click.argument("pipeline")
@click.argument("topic")
@reason_option
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where counting of the new topic begins.",
)
@dry_run_option
@yes_option
@pass_app
def adopt(
    app: App, pipeline: str, topic: str, reason: str, start: str, dry_run: bool, yes: bool
) -> None:
    """Follow a topic's new incarnation from now on.

    What was counted from the old one stays counted, under the old id; its open losses are accepted
    with it. Shows where counting would begin and asks.
    """
    settings = app.settings.pipeline(pipeline)
    if topic not in settings.topics:
        raise UsageError(
            f"pipeline {settings.name} does not read the topic {topic}",
            next_step=f"its topics are: {', '.join(settings.topics)}",
        )
    adoption = find_adoption(settings, topic, start, _snapshot(app, settings, topic))

    def decide(tx: Transaction) -> dict[int, int]:
        lock_pipeline(tx, settings.name, settings.table)
        return adopt_topic(
            tx, settings.name, adoption, by=app.context.requester.name, reason=reason
        )

    starts = app.context.database.run(decide, dry_run=True)
    _show_adoption(app, replace(adoption, starts=starts))
    if starts != adoption.starts:
        app.out.line("this id was followed before: counting goes on where it stood")
    if not dry_run:
        app.confirm(f"Follow {topic} with the id {adoption.topic_id} from now on?", yes=yes)
        app.context.database.run(decide)
    app.out.line(f"{topic} {'would be' if dry_run else 'is'} adopted")


def find_adoption(pipeline: Pipeline, topic: str, start: str, kafka: KafkaSnapshot) -> Adoption:
    """What adopting the topic as Kafka shows it now would mean.

    Raises:
        MissingTopicError: Kafka does not know the topic.
    """
    if topic not in kafka.topics:
        raise MissingTopicError(
            f"Kafka has no topic {topic}; there is nothing to adopt",
            next_step=f"create it, or take it out of the topics of {pipeline.name}",
        )
    starts = first_offsets(kafka, [topic], start, {})
    return Adoption(
        topic=topic,
        cluster_id=kafka.cluster_id,
        topic_id=kafka.topics[topic].topic_id,
        starts={partition.partition: offset for partition, offset in starts.items()},
    )


@click.command(
    cls=Command,
    examples=[
        "tally abandon 42 --reason 'planned against the wrong cluster' --dry-run",
        "tally abandon 42 --reason 'planned against the wrong cluster'",
    ],
)
@batch_argument
@reason_option
@dry_run_option
@pass_app
def abandon(app: App, batch_id: int, reason: str, dry_run: bool) -> None:
    """Give a planned batch up.

    It counts nothing, and whoever still works on it can no longer commit it. The offsets of an
    ingest batch are planned anew; what a replay's batch was to replace stays. A committed batch
    cannot be abandoned.
    """

    def decide(tx: Transaction) -> Batch:
        return batches.abandon(tx, batch_id, by=app.context.requester.name, reason=reason)

    batch = app.context.database.run(decide, dry_run=dry_run)
    for segment in batch.segments:
        app.out.line(str(segment.range))
    app.out.line(
        f"batch {batch_id} of {batch.pipeline} {'would be' if dry_run else 'is'} abandoned; "
        + (
            f"{plural(batch.offsets, 'offset')} stay uncounted until the next plan"
            if batch.kind is BatchKind.INGEST
            else "what it was to replace stays as it is"
        )
    )


def _snapshot(app: App, pipeline: Pipeline, topic: str) -> KafkaSnapshot:
    return app.context.kafka.snapshot([topic], read_committed=pipeline.reads_committed)


def _show_losses(app: App, found: list[LossRecord]) -> None:
    app.out.table(
        ["PARTITION", "RANGE", "OFFSETS", "CAUSE", "STATE", "DETECTED", "DECIDED", "BY", "REASON"],
        [
            [
                str(loss.range.partition),
                span(loss.range.from_offset, loss.range.until_offset),
                number(loss.range.offsets),
                str(loss.cause),
                loss.state,
                moment(loss.detected_at),
                moment(loss.decided_at),
                loss.decided_by or ABSENT,
                loss.reason or ABSENT,
            ]
            for loss in found
        ],
        numbers=["OFFSETS"],
    )


def _show_adoption(app: App, adoption: Adoption) -> None:
    app.out.line(
        f"{adoption.topic} with the id {adoption.topic_id} on cluster {adoption.cluster_id}"
    )
    app.out.table(
        ["PARTITION", "COUNTING BEGINS AT"],
        [
            [str(TopicPartition(topic=adoption.topic, partition=number_)), str(offset)]
            for number_, offset in sorted(adoption.starts.items())
        ],
        numbers=["COUNTING BEGINS AT"],
    )
