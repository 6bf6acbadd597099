"""``topics``: adopt topics that were deleted and created again."""

import click

from tally.cli import completion
from tally.cli.app import App
from tally.cli.command import Command, Group
from tally.cli.options import (
    dry_run_option,
    json_option,
    pass_app,
    reason_option,
    yes_option,
)
from tally.formatting import plural
from tally.losses import topics as use_case
from tally.losses.topics import AdoptionView, preview_adoption


@click.group(cls=Group)
def topics() -> None:
    """Topics that were deleted and created again.

    A topic with the same name and another id is a new generation: its offsets denote other records.
    It is blocked until an operator adopts it.
    """


@topics.command(
    cls=Command,
    examples=[
        "tally topics adopt error_log alog --reason 're-created with 12 partitions' --dry-run",
        "tally topics adopt error_log alog --start latest --reason 'moved cluster' --yes",
    ],
)
@click.argument("pipeline", shell_complete=completion.pipelines)
@click.argument("topic", shell_complete=completion.topics)
@reason_option
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where counting of the new generation begins.",
)
@dry_run_option
@yes_option
@json_option
@pass_app
def adopt(
    app: App, pipeline: str, topic: str, reason: str, start: str, dry_run: bool, yes: bool
) -> None:
    """Follow a topic's new generation from now on.

    What was counted from the old generation stays in the result. Its open losses, and what was
    planned of it and never counted, are accepted as lost; with --start earliest also what the new
    generation has lost already. Shows all of it, and where counting would begin, and asks.
    """
    view = preview_adoption(app.context, pipeline, topic, start=start, reason=reason)
    if not app.out.as_json:
        _show(app, view)
    if not dry_run:
        app.confirm(f"Follow {topic} with the id {view.topic_id} from now on?", yes=yes)
        view = use_case.adopt(app.context, view, reason=reason)
    if app.out.as_json:
        app.out.view(view)
    else:
        offsets = sum(lost.range.offsets for lost in view.lost)
        lost = f"; {plural(offsets, 'offset')} accepted as lost" if offsets else ""
        app.out.line(f"{topic} {'is' if view.adopted else 'would be'} adopted{lost}")


def _show(app: App, view: AdoptionView) -> None:
    app.out.line(f"{view.topic} with the id {view.topic_id} on cluster {view.cluster_id}")
    app.out.table(
        ["PARTITION", "COUNTING BEGINS AT"],
        [[f"{view.topic}/{start.partition}", str(start.offset)] for start in view.partitions],
        numbers=["COUNTING BEGINS AT"],
    )
    for lost in view.lost:
        app.out.line(
            f"accepted as lost with it: {lost.range} of the id {lost.topic_id}, "
            f"{plural(lost.range.offsets, 'offset')} ({lost.cause})"
        )
    if view.was_followed_before:
        app.out.line("this id was followed before: counting resumes where it stopped")
