"""Running a recorded replay to its end; when it stops before, how to resume it."""

from dataclasses import dataclass
from typing import Final

from tally.cli.app import App
from tally.cli.session import shared_session
from tally.cli.ui.output import Meter
from tally.cli.ui.values import moment, sums
from tally.counting.outcomes import RanView
from tally.errors import DataLossError, TallyError
from tally.formatting import plural
from tally.ledger.replacements import Changes
from tally.ledger.replays import ReplayRecord
from tally.replay import run as use_case
from tally.replay.preview_view import PreviewView
from tally.replay.run import ReplayOutcome
from tally.views import ErrorView, view_of

RANGES_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayDocument:
    """What ``tally replay --json`` writes; a key that does not apply to the options is null.

    Of a replay that has stopped only the id is written, as the ledger may not answer.
    """

    dry_run: bool = False
    """Whether nothing was changed."""
    preview: PreviewView | None = None
    """The preview that was shown before the replay was requested."""
    replay_id: int | None = None
    """The ledger's key."""
    replay: ReplayRecord | None = None
    """The replay as the ledger has it now."""
    batches: tuple[RanView, ...] = ()
    """The batches that this call has counted."""
    changes: Changes | None = None
    """What the replay has changed in the result."""
    error: ErrorView | None = None
    """Why the replay cannot be done, or why it has stopped."""


def count_to_the_end(app: App, replay_id: int, preview: PreviewView | None = None) -> None:
    """Run the planned batches of a replay, one after another; when it stops, say how to resume it.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
        TallyError: As :func:`tally.replay.run.resume_replay`.
        KeyboardInterrupt: The operator has stopped it.
    """
    done: list[RanView] = []
    try:
        with app.out.progress("reprocessing", "offsets") as meter:
            replay = use_case.replay(app.context, replay_id)
            ended = _count(app, replay, meter, done)
    except BaseException as error:
        is_lost = isinstance(error, DataLossError)  # then resuming would find the same
        rest = "" if is_lost else f", and the rest is resumed by: tally replay --resume {replay_id}"
        app.out.note(f"replay {replay_id} has stopped: what it has committed stays{rest}")
        if app.out.as_json:
            failure = ErrorView.of(error) if isinstance(error, TallyError) else None
            app.out.view(
                ReplayDocument(
                    replay_id=replay_id, preview=preview, batches=tuple(done), error=failure
                )
            )
        raise
    if app.out.as_json:
        app.out.view(
            ReplayDocument(
                replay_id=replay_id,
                preview=preview,
                replay=view_of(ReplayRecord, ended),
                batches=tuple(done),
                changes=ended.changes,
            )
        )
        return
    for line in summary(ended, done):
        app.out.sentence(line)


def _count(app: App, replay: ReplayRecord, meter: Meter, done: list[RanView]) -> ReplayOutcome:
    def show_progress(read: int = 0, _: int = 0) -> None:
        offsets = replay.offsets_committed + sum(ran.offsets for ran in done) + read
        # A batch that had to be replanned may be wider than it was.
        meter.update(offsets, max(offsets, replay.offsets))

    def tell(ran: RanView) -> None:
        done.append(ran)
        app.out.note(batch_line(ran, replay.committed + len(done), replay.batches))
        show_progress()

    with shared_session(app, show_progress) as ctx:
        return use_case.resume_replay(ctx, replay.replay_id, on_batch=tell)


def batch_line(ran: RanView, position: int, batches: int) -> str:
    """The outcome of one batch."""
    where = f"batch {ran.batch_id} ({position} of {max(position, batches)})"
    if ran.committed_before:
        return f"{where} {ran.before}"
    shown = ", ".join(str(r.range) for r in ran.ranges[:RANGES_SHOWN])
    more = f" and {len(ran.ranges) - RANGES_SHOWN} more" if len(ran.ranges) > RANGES_SHOWN else ""
    return f"{where} is committed: {shown}{more}: {_sums([ran])}, {ran.seconds:.1f} s"


def summary(replay: ReplayOutcome, done: list[RanView]) -> list[str]:
    """The replay's state, what this call has read for it, and what it has changed in the result."""
    read = f"; read now: {_sums(done)}" if done else ""
    if replay.changes is None:
        unknown = (
            "what it has changed is no longer known: counts of it, or of what it replaced, "
            f"were pruned at {moment(replay.pruned_at)}"
        )
        return [f"replay {replay.replay_id} of {replay.pipeline} is {replay.state}{read}", unknown]
    stands = (
        f"replay {replay.replay_id} of {replay.pipeline} is {replay.state}: "
        f"{plural(replay.committed, 'batch')}, {plural(replay.offsets_committed, 'offset')}"
    )
    return [stands + read, str(replay.changes)]


def _sums(done: list[RanView]) -> str:
    counts = ((ran.records, ran.matched, ran.malformed, ran.continuations) for ran in done)
    return sums(*map(sum, zip(*counts, strict=True)))
