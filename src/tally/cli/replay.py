"""``replay``: reprocess ranges of offsets; the new counts replace the old ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.output import Output, moment, number, sums
from tally.cli.replay_selector import Selected, options_given, read_request, selector_options
from tally.cli.session import shared_session
from tally.counting.outcomes import Ran
from tally.errors import DataLossError, FencedError, TallyError, UsageError
from tally.formatting import ABSENT, first_of, plural
from tally.ledger import contributions, replays
from tally.maintenance.decisions import cancel_replay
from tally.model import EMPTY_TOTALS, OffsetRange, ReplayState
from tally.planning.replay_request import Request
from tally.reading.columns import COUNT, PLACE, SPAN, TEXT, WORD, Column
from tally.replay import run as use_case
from tally.replay.preview import Preview, preview
from tally.replay.trial import Trial
from tally.views import ErrorView, view_of

HELP: Final = "tally replay --help"
RANGES_SHOWN: Final = 3
ROWS_SHOWN: Final = 50
REFUSAL: Final = (
    PLACE,
    replace(SPAN, header="REFUSED"),
    Column("kafka_holds", "", "KAFKA HOLDS"),
    Column("cause", "", "WHY", TEXT),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayDocument:
    """What ``tally replay --json`` writes; a key that does not apply to the options is null.

    Of a replay that has stopped only the id is written, as the ledger may not answer.
    """

    dry_run: bool = False
    """Whether nothing was changed."""
    preview: Preview | None = None
    """The preview that was shown before the replay was requested."""
    replay_id: int | None = None
    """The ledger's key."""
    replay: replays.ReplayRecord | None = None
    """The replay as the ledger has it now."""
    batches: tuple[Ran, ...] = ()
    """The batches that this call has counted."""
    changes: contributions.Changes | None = None
    """What the replay has changed in the result."""
    error: ErrorView | None = None
    """Why the replay cannot be done, or why it has stopped."""


@command(document=ReplayDocument)
@options.pipeline
@selector_options
@options.reason_option()
@click.option("--resume", type=options.REPLAY, help="Resume this replay where it stopped.")
@click.option(
    "--cancel",
    type=options.REPLAY,
    help="Abandon the planned batches of this replay; its committed batches stay.",
)
@options.dry_run
@options.yes
def replay(
    app: App,
    /,
    pipeline: str | None,
    reason: str | None,
    resume: int | None,
    cancel: int | None,
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

    Examples:
        tally replay --all --dry-run
        tally replay --topic alog --partition 3 --from 300 --until 900 --reason 'ticket 17'
        tally replay --range alog/0:300-310 --range alog/3:0-50 --reason 'ticket 17'
        tally replay --minute '2026-11-20 14:05' --to-minute '2026-11-20 14:20' --dry-run
        tally replay --since 2026-11-20T14:00:00Z --before 2026-11-20T15:00:00Z --dry-run
        tally replay error_log --batch 42 --reason 'WARN counts as well' --yes
        tally replay --from-file before.csv --until-file after.csv --reason 'deployment'
        tally replay --resume 7
        tally replay --cancel 7 --reason 'wrong levels'
    """
    if resume is None and cancel is None:
        if pipeline is not None:  # before the options, which lack, too, where a topic is named
            app.pipeline(pipeline)
        _start(app, pipeline, read_request(selector), reason, dry_run=dry_run, yes=yes)
    elif resume is not None:
        _check_alone("--resume", pipeline, {"cancel": cancel, "reason": reason, **selector})
        _resume(app, resume, dry_run=dry_run)
    elif cancel is not None:
        _check_alone("--cancel", pipeline, selector)
        _cancel(app, cancel, reason, dry_run=dry_run)


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
    if dry_run or shown.error is not None:
        app.out.document(ReplayDocument(dry_run=dry_run, preview=shown, error=shown.error))
    show_preview(app.out, shown, Trial.of(app.context, shown))
    if not app.out.as_json:
        _mention_open(app, shown.pipeline)
    shown.check_possible()
    if dry_run or reason is None:
        return
    app.confirm(question(shown), yes=yes)
    try:
        requested = use_case.request_replay(
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
    for one in use_case.open_replays(app.context, name):
        app.out.note(
            f"replay {one.replay_id} is open, {_progress(one)}: "
            f"tally replay --resume {one.replay_id}"
        )


def _resume(app: App, replay_id: int, *, dry_run: bool) -> None:
    found = use_case.replay(app.context, replay_id)
    if found.state is ReplayState.CANCELLED:
        raise FencedError(
            f"replay {replay_id} was cancelled; nothing of it is left to reprocess",
            next_step=f"tally replay {found.pipeline} --all --dry-run shows a new one",
        )
    left = found.offsets - found.offsets_committed
    text = (
        f"replay {replay_id} of {found.pipeline} ({found.request}), requested by "
        f"{found.requested_by} at {moment(found.requested_at)}: {found.reason}; "
        f"{_progress(found)}, {plural(left, 'offset')} left"
    )
    if dry_run:
        app.out.document(ReplayDocument(dry_run=True, replay_id=replay_id, replay=found))
        app.out.sentence(text)
        return
    app.out.note(text)
    count_to_the_end(app, replay_id)


def _cancel(app: App, replay_id: int, reason: str | None, *, dry_run: bool) -> None:
    why = _needed(reason)
    replay, abandoned = cancel_replay(app.context, replay_id, reason=why, dry_run=dry_run)
    app.out.document(ReplayDocument(dry_run=dry_run, replay_id=replay_id, replay=replay))
    verb = "would be" if dry_run else "is"
    app.out.line(
        f"replay {replay_id} of {replay.pipeline} {verb} cancelled: "
        f"{plural(len(abandoned), 'batch')} abandoned, {number(replay.committed)} committed "
        "before"
    )


def _check_alone(option: str, pipeline: str | None, others: Selected) -> None:
    if found := [*(["PIPELINE"] if pipeline else []), *options_given(others)]:
        raise UsageError(f"{option} takes no {found[0]}: leave it out", next_step=HELP)


def _needed(reason: str | None) -> str:
    if reason is None:
        raise UsageError(
            "say why with --reason; the ledger keeps it",
            next_step="the same command with --reason '…'",
        )
    return reason


def _progress(replay: replays.ReplayRecord) -> str:
    return f"{number(replay.committed)} of {plural(replay.batches, 'batch')} committed"


def count_to_the_end(app: App, replay_id: int, preview: Preview | None = None) -> None:
    """Run the planned batches of a replay, one after another; when it stops, say how to resume it.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
        TallyError: As :func:`tally.replay.run.run_replay`.
        KeyboardInterrupt: The operator has stopped it.
    """
    done: list[Ran] = []
    found: dict[str, Any] = {"replay_id": replay_id, "preview": preview}
    try:
        with app.out.progress("reprocessing", "offsets") as meter:
            replay = use_case.replay(app.context, replay_id)

            def show_progress(read: int = 0, _: int = 0) -> None:
                offsets = replay.offsets_committed + sum(ran.offsets for ran in done) + read
                # A batch that had to be replanned may be wider than it was.
                meter.update(offsets, max(offsets, replay.offsets))

            with shared_session(app, show_progress) as ctx:
                for ran in use_case.run_replay(ctx, replay_id):
                    done.append(ran)
                    app.out.note(batch_line(ran, replay.committed + len(done), replay.batches))
                    show_progress()
                ended = use_case.replay_outcome(ctx, replay_id)
        found |= {"replay": view_of(replays.ReplayRecord, ended), "changes": ended.changes}
    except BaseException as error:
        is_lost = isinstance(error, DataLossError)  # then resuming would find the same
        rest = "" if is_lost else f", and the rest is resumed by: tally replay --resume {replay_id}"
        app.out.note(f"replay {replay_id} has stopped: what it has committed stays{rest}")
        found["error"] = ErrorView.of(error) if isinstance(error, TallyError) else None
        raise
    finally:
        app.out.document(ReplayDocument(**found, batches=tuple(done)))
    for line in summary(ended, done):
        app.out.sentence(line)


def batch_line(ran: Ran, position: int, batches: int) -> str:
    """The outcome of one batch."""
    where = f"batch {ran.batch_id} ({position} of {max(position, batches)})"
    if ran.committed_before:
        return f"{where} {ran.before}"
    shown = first_of([r.range for r in ran.ranges], RANGES_SHOWN)
    return f"{where} is committed: {shown}: {sums(ran.total)}, {ran.seconds:.1f} s"


def summary(replay: use_case.ReplayOutcome, done: list[Ran]) -> list[str]:
    """The replay's state, what this call has read for it, and what it has changed in the result."""
    read = f"; read now: {sums(sum((ran.total for ran in done), EMPTY_TOTALS))}" if done else ""
    counted = (
        f": {plural(replay.committed, 'batch')}, {plural(replay.offsets_committed, 'offset')}"
        if replay.changes
        else ""  # the ledger has no longer all of them
    )
    stands = f"replay {replay.replay_id} of {replay.pipeline} is {replay.state}{counted}"
    return [stands + read, replay.changed]


def show_preview(out: Output, preview: Preview, trial: Trial | None = None) -> None:
    """Write the preview to stdout: what is read per partition, then the totals."""
    out.line(f"{preview.pipeline}: {preview.request}")
    if refusals := preview.refusals:
        out.records(REFUSAL, refusals[:ROWS_SHOWN])
        out.left_out(len(refusals) - ROWS_SHOWN)
        if fine := len(preview.asked) - len(refusals):
            out.line(f"the other {plural(fine, 'range')} could be reprocessed")
    elif preview.batches:
        _show_ranges(out, preview)
        for name, value in preview.facts:
            out.line(f"{name:16}{value}")
        if trial is not None:
            out.line(f"{'tried':16}{trial}")
    for note in preview.notes:
        out.line(f"{'note':16}{note}")


def question(preview: Preview) -> str:
    """The question to the operator: how many offsets to count, how many segments to replace."""
    replaced = preview.segments_replaced
    if not replaced:
        return f"Count {plural(preview.offsets, 'offset')} for the first time?"
    return (
        f"Count {plural(preview.offsets, 'offset')}, and replace {plural(replaced, 'segment')} "
        "of the result?"
    )


def _show_ranges(out: Output, preview: Preview) -> None:
    # Ranges of seven digits fit into 80 columns; a column that would be empty is left out.
    numbers = ["SEGMENTS", *(["NEVER COUNTED"] if preview.never_counted else [])]
    headers = ["PARTITION", "ASKED", "READ", *numbers, "KAFKA HOLDS"]
    rows = []
    for read in preview.read[:ROWS_SHOWN]:
        place, (first, *others) = read.range.place, _spans(read.asked)
        values = [number(read.segments_replaced), number(read.never_counted)][: len(numbers)]
        rows.append([place, first, read.range.span, *values, str(read.kafka_holds or ABSENT)])
        # Further requested ranges in it have lines of their own.
        rows += [[place, other, *([""] * (len(values) + 2))] for other in others]
    shown = [
        Column(header, "", header, COUNT if header in numbers else WORD, of=itemgetter(at))
        for at, header in enumerate(headers)
    ]
    out.records(shown, rows)
    out.left_out(len(preview.read) - ROWS_SHOWN)


def _spans(ranges: Sequence[OffsetRange]) -> list[str]:
    if len(ranges) > RANGES_SHOWN:
        return [f"{len(ranges):,} ranges"]
    return [r.span for r in ranges]
