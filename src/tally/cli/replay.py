"""``replay``: reprocess ranges of offsets; the new counts replace the old ones."""

from typing import Any, Final

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.replay_preview import question, show_preview
from tally.cli.replay_running import ReplayDocument, count_to_the_end
from tally.cli.replay_selector import options_given, read_request, selector_options
from tally.cli.ui.values import moment, number
from tally.errors import FencedError, UsageError
from tally.formatting import plural
from tally.ledger.replays import ReplayRecord
from tally.maintenance.abandon import cancel_replay
from tally.model import ReplayState
from tally.planning.replay_request import Request
from tally.replay import run as use_case
from tally.replay.preview_view import preview
from tally.replay.record import request_shown
from tally.views import view_of

OPEN_REPLAYS_LOOKED_FOR = 100
HELP: Final = "tally replay --help"


@command(
    examples=[
        "tally replay --all --dry-run",
        "tally replay --topic alog --partition 3 --from 300 --until 900 --reason 'ticket 17'",
        "tally replay --range alog/0:300-310 --range alog/3:0-50 --reason 'ticket 17'",
        "tally replay --minute '2026-11-20 14:05' --to-minute '2026-11-20 14:20' --dry-run",
        "tally replay --since 2026-11-20T14:00:00Z --before 2026-11-20T15:00:00Z --dry-run",
        "tally replay error_log --batch 42 --reason 'WARN counts as well' --yes",
        "tally replay --from-file before.csv --until-file after.csv --reason 'deployment'",
        "tally replay --resume 7",
        "tally replay --cancel 7 --reason 'wrong levels'",
    ],
    document=ReplayDocument,
)
@options.pipeline
@selector_options
@options.optional_reason
@click.option(
    "--resume",
    "resume_id",
    type=options.REPLAY,
    metavar="REPLAY",
    help="Resume this replay where it stopped.",
)
@click.option(
    "--cancel",
    "cancel_id",
    type=options.REPLAY,
    metavar="REPLAY",
    help="Abandon the planned batches of this replay; its committed batches stay.",
)
@options.dry_run
@options.yes
def replay(
    app: App,
    /,
    pipeline: str | None,
    reason: str | None,
    resume_id: int | None,
    cancel_id: int | None,
    dry_run: bool,
    yes: bool,
    **selector: Any,
) -> None:
    """Reprocess ranges of offsets and replace their counts.

    For other rules, for offsets before the pipeline's start, and for correcting wrong counts.
    Select the ranges in one way: by offsets, ranges, record times, a batch, minutes of the result,
    files, or --all.

    Shows what would be read and replaced, and asks; exactly what was shown is done. A segment is
    replaced whole, so a range is widened to the segments that it touches. Refused are offsets that
    are not counted yet, offsets that Kafka no longer holds, whose counts stay, and a request that
    an open replay is to reprocess exactly and has not begun. Readers of the result see either the
    old counts of a batch or its new ones. Minute batches may run meanwhile.

    Large requests are divided into batches that are committed one by one; after Ctrl-C, --resume
    continues.
    """
    if resume_id is None and cancel_id is None:
        if pipeline is not None:  # before the options, which lack, too, where a topic is named
            app.pipeline(pipeline)
        _start(app, pipeline, read_request(selector), reason, dry_run=dry_run, yes=yes)
        return
    _check_alone(
        resume_id is not None,
        [
            *(["--cancel"] if resume_id is not None and cancel_id is not None else []),
            *(["PIPELINE"] if pipeline is not None else []),
            *(["--reason"] if resume_id is not None and reason is not None else []),
            *options_given(selector),
        ],
    )
    if resume_id is not None:
        _resume(app, resume_id, dry_run=dry_run)
    elif cancel_id is not None:
        _cancel(app, cancel_id, reason, dry_run=dry_run)


def _start(
    app: App,
    pipeline: str | None,
    asked: Request,
    reason: str | None,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    if not dry_run:
        reason = _needed(reason)
        app.check_may_ask(yes=yes)
    shown = preview(app.context, app.pipeline(pipeline), asked)
    if not app.out.as_json:
        show_preview(app.out, shown)
        _mention_open(app, shown.pipeline)
    elif dry_run or shown.error is not None:
        app.out.view(ReplayDocument(dry_run=dry_run, preview=shown, error=shown.error))
    shown.check_possible()
    if dry_run or reason is None:
        return
    app.confirm(question(shown), yes=yes)
    try:
        requested = request_shown(
            app.context,
            shown.pipeline,
            request=shown.request,
            digest=shown.digest,
            asked=shown.asked,
            plan=shown.plan,
            reason=reason,
        )
    except KeyboardInterrupt:
        app.out.note(
            f"stopped while it was recorded: tally replays {shown.pipeline} shows whether it was"
        )
        raise
    replay_id = requested.replay_id
    app.out.note(f"replay {replay_id} is recorded, {plural(len(requested.batches), 'batch')}")
    count_to_the_end(app, replay_id, shown)


def _mention_open(app: App, name: str) -> None:
    """Name an open replay: a repeated request usually means to resume an interrupted one."""
    found = use_case.list_replays(
        app.context, name, state=ReplayState.OPEN, limit=OPEN_REPLAYS_LOOKED_FOR
    )
    for open_replay in found.replays:
        app.out.note(
            f"replay {open_replay.replay_id} is open, {_progress(open_replay)}: "
            f"tally replay --resume {open_replay.replay_id}"
        )


def _resume(app: App, replay_id: int, *, dry_run: bool) -> None:
    found = use_case.replay(app.context, replay_id)
    if found.state is ReplayState.CANCELLED:
        raise FencedError(
            f"replay {replay_id} was cancelled; nothing of it is left to reprocess",
            next_step=f"tally replay {found.pipeline} --all --dry-run shows a new one",
        )
    if dry_run and app.out.as_json:
        app.out.view(ReplayDocument(dry_run=True, replay_id=replay_id, replay=found))
        return
    left = found.offsets - found.offsets_committed
    text = (
        f"replay {replay_id} of {found.pipeline} ({found.request}), requested by "
        f"{found.requested_by} at {moment(found.requested_at)}: {found.reason}; "
        f"{_progress(found)}, {plural(left, 'offset')} left"
    )
    if dry_run:
        app.out.sentence(text)
        return
    app.out.note(text)
    count_to_the_end(app, replay_id)


def _cancel(app: App, replay_id: int, reason: str | None, *, dry_run: bool) -> None:
    view = cancel_replay(app.context, replay_id, reason=_needed(reason), dry_run=dry_run)
    if app.out.as_json:
        app.out.view(
            ReplayDocument(dry_run=dry_run, replay_id=replay_id, replay=view_of(ReplayRecord, view))
        )
        return
    verb = "would be" if dry_run else "is"
    app.out.line(
        f"replay {replay_id} of {view.pipeline} {verb} cancelled: "
        f"{plural(len(view.abandoned), 'batch')} abandoned, {number(view.committed)} committed "
        "before"
    )


def _check_alone(resume: bool, others: list[str]) -> None:
    if others:
        raise UsageError(
            f"{'--resume' if resume else '--cancel'} takes no {others[0]}: leave it out",
            next_step=HELP,
        )


def _needed(reason: str | None) -> str:
    if reason is None:
        raise UsageError(
            "say why with --reason; the ledger keeps it",
            next_step="the same command with --reason '…'",
        )
    return reason


def _progress(replay: ReplayRecord) -> str:
    return f"{number(replay.committed)} of {plural(replay.batches, 'batch')} committed"
