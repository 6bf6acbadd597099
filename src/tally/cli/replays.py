"""``replays``: list replays with their progress."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, limit_option, pass_app, pipeline_argument, wide_option
from tally.cli.ui.values import moment, number
from tally.ledger.replays import ReplayRecord
from tally.replay import run as use_case


@click.command(cls=Command, examples=["tally replays", "tally replays error_log --limit 5 --json"])
@pipeline_argument
@limit_option(20, "Replays")
@wide_option
@json_option
@pass_app
def replays(app: App, pipeline: str | None, limit: int) -> None:
    """List replays, newest first.

    Shows who requested what, when and why, and how many of its batches and offsets are committed;
    abandoned batches are left out. An open replay waits for tally replay --resume.
    """
    view = use_case.list_replays(app.context, app.pipeline(pipeline), limit=limit)
    if app.out.as_json:
        app.out.view(view)
        return
    app.out.table(
        ["REPLAY", "STATE", "REQUESTED", "BY", "BATCHES", "OFFSETS", "ASKED FOR", "REASON"],
        [_row(replay) for replay in view.replays],
        numbers=["REPLAY", "BATCHES", "OFFSETS"],
        texts=["ASKED FOR"],
        extra=["BY", "OFFSETS", "REASON"],
    )


def _row(replay: ReplayRecord) -> list[str]:
    return [
        str(replay.replay_id),
        str(replay.state),
        moment(replay.requested_at),
        replay.requested_by,
        f"{number(replay.committed)}/{number(replay.batches)}",
        f"{number(replay.offsets_committed)}/{number(replay.offsets)}",
        replay.request,
        replay.reason,
    ]
