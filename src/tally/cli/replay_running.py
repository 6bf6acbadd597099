"""A replay that was written down: counted to its end, with a way back in wherever it stops."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tally.cli.app import App
from tally.cli.failures import error_shape
from tally.cli.session import shared_session
from tally.cli.shapes import Shape, changes_shape, preview_shape, ran_shape, replay_shape
from tally.cli.ui.output import Meter
from tally.cli.ui.values import moment, number
from tally.errors import TallyError
from tally.formatting import plural
from tally.ledger.replacements import Changes, changes_of
from tally.ledger.replays import ReplayRecord, find_replay
from tally.model import describe_ranges
from tally.pipeline.context import Context, Reader
from tally.pipeline.replay import run_replay
from tally.pipeline.replay_plan import Preview
from tally.pipeline.run import Ran

RANGES_SHOWN: Final = 3


def find(app: App, replay_id: int) -> ReplayRecord:
    """One replay, as it stands now.

    Raises:
        UnknownReplayError: The ledger has none of that id.
    """
    with app.context.database.transaction(read_only=True) as tx:
        return find_replay(tx, replay_id)


def count_to_the_end(app: App, replay_id: int, preview: Preview | None = None) -> None:
    """Count what is left of a replay, batch after batch; however it stops, say how to go on.

    Raises:
        UnknownReplayError: The ledger has none of that id.
        TallyError: As :func:`tally.pipeline.replay.run_replay`.
        KeyboardInterrupt: Somebody has stopped it.
    """
    done: list[Ran] = []
    try:
        with (
            shared_session(app) as ctx,
            app.out.progress("counting again", "offsets") as meter,
        ):
            _count(app, ctx, find(app, replay_id), meter, done)
        with app.context.database.transaction(read_only=True) as tx:
            ended, changes = find_replay(tx, replay_id), changes_of(tx, replay_id)
    except BaseException as error:
        app.out.note(
            f"replay {replay_id} has stopped: what it has committed stays, and the rest goes on "
            f"with: tally replay --resume {replay_id}"
        )
        if app.out.as_json:
            failure = error if isinstance(error, TallyError) else None
            app.out.document(document(replay_id, preview=preview, done=done, error=failure))
        raise
    if app.out.as_json:
        app.out.document(document(ended, preview=preview, done=done, changes=changes))
        return
    for line in summary(ended, done, changes):
        app.out.line(line)


def document(
    replay: ReplayRecord | int | None,
    *,
    dry_run: bool = False,
    preview: Preview | None = None,
    done: list[Ran] | None = None,
    changes: Changes | None = None,
    error: TallyError | None = None,
) -> Shape:
    """What ``tally replay --json`` carries; null for what this form of it has not.

    Of a replay that has stopped only the id is said: the ledger may not answer.
    """
    record = replay if isinstance(replay, ReplayRecord) else None
    return {
        "dry_run": dry_run,
        "preview": preview and preview_shape(preview),
        "replay_id": record.replay_id if record else replay,
        "replay": record and replay_shape(record),
        "batches": [ran_shape(ran) for ran in done or ()],
        "changes": changes and changes_shape(changes),
        "error": error and error_shape(error),
    }


def _count(app: App, ctx: Context, replay: ReplayRecord, meter: Meter, done: list[Ran]) -> None:
    offsets = replay.offsets_committed

    @contextmanager
    def lend() -> Iterator[Reader]:
        with ctx.open_reader() as reader:
            # Not before: a bar would be in the way of a starting Spark, which writes there, too.
            meter.update(offsets, max(offsets, replay.offsets))
            yield reader

    for ran in run_replay(dataclasses.replace(ctx, open_reader=lend), replay.replay_id):
        done.append(ran)
        offsets += ran.batch.offsets
        app.out.note(batch_line(ran, replay.committed + len(done), replay.batches))
        # A batch that had to be planned anew may be wider than it was.
        meter.update(offsets, max(offsets, replay.offsets))


def batch_line(ran: Ran, position: int, batches: int) -> str:
    """What became of one batch."""
    where = f"batch {ran.batch.batch_id} ({position} of {max(position, batches)})"
    if not ran.committed:
        return f"{where} was committed before"
    ranges = [segment.range for segment in ran.batch.segments]
    shown = describe_ranges(ranges[:RANGES_SHOWN])
    more = f" and {len(ranges) - RANGES_SHOWN} more" if len(ranges) > RANGES_SHOWN else ""
    return f"{where} is committed: {shown}{more}: {_sums([ran])}, {ran.seconds:.1f} s"


def summary(replay: ReplayRecord, done: list[Ran], changes: Changes | None) -> list[str]:
    """The replay as it stands, what was read for it now, and what it has changed in the result."""
    read = f"; read now: {_sums(done)}" if done else ""
    if changes is None:
        unknown = (
            "what it has changed is not known any more: counts of it, or of what it replaced, "
            f"were pruned at {moment(replay.pruned_at)}"
        )
        return [f"replay {replay.replay_id} of {replay.pipeline} is {replay.state}{read}", unknown]
    stands = (
        f"replay {replay.replay_id} of {replay.pipeline} is {replay.state}: "
        f"{plural(replay.committed, 'batch')}, {plural(replay.offsets_committed, 'offset')}"
    )
    return [stands + read, str(changes)]


def _sums(done: list[Ran]) -> str:
    totals = [totals for ran in done for totals in ran.totals.values()]
    return (
        f"{plural(sum(t.records for t in totals), 'record')}, "
        f"{number(sum(t.matched for t in totals))} matched, "
        f"{number(sum(t.malformed for t in totals))} malformed"
    )
