"""``topics``: topics that were deleted and created again."""

from dataclasses import replace

import click

from tally.app import decisions
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    dry_run_option,
    pass_app,
    reason_option,
    yes_option,
)
from tally.ledger.decisions import (
    Adoption,
)
from tally.model import TopicPartition


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
    ctx = app.context
    adoption = decisions.find_adoption(ctx, pipeline, topic, start)
    starts = decisions.adopt(ctx, pipeline, adoption, reason=reason, dry_run=True)
    _show_adoption(app, replace(adoption, starts=starts))
    if starts != adoption.starts:
        app.out.line("this id was followed before: counting goes on where it stood")
    if not dry_run:
        app.confirm(f"Follow {topic} with the id {adoption.topic_id} from now on?", yes=yes)
        decisions.adopt(ctx, pipeline, adoption, reason=reason)
    app.out.line(f"{topic} {'would be' if dry_run else 'is'} adopted")


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
