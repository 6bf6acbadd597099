"""Running a replay batch after batch, and what has become of it.

:func:`run_replay` can be called again at any time, by any process, until all batches are committed.
Ingest batches and other replays may run concurrently.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tally.context import Context
from tally.counting.outcomes import Ran
from tally.counting.run import run_batches, together
from tally.ledger import batches, replays
from tally.ledger.contributions import Changes, changes_of
from tally.ledger.replays import ReplayRecord
from tally.model import ReplayState
from tally.views import view_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaysView:
    """Replays of a pipeline."""

    pipeline: str
    """The pipeline."""
    replays: tuple[ReplayRecord, ...]
    """Newest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayOutcome(ReplayRecord):
    """Everything that the ledger holds about a replay, and what it has read and changed so far."""

    records: int
    """Records that its committed batches have read."""
    matched: int
    """Lines that they have counted."""
    malformed: int
    """Records that could not be understood."""
    continuations: int | None
    """Unmatched records that begin no line; null where they were not all counted by themselves."""
    minutes: int
    """Minutes that they have counted lines for."""
    changes: Changes | None
    """What has changed in the result; null when this is no longer known, because counts of the
    replay, or of what it replaced, were pruned."""

    @property
    def changed(self) -> str:
        """What has changed in the result, or why this is not known."""
        if self.changes is not None:
            return str(self.changes)
        return (
            "what it has changed is no longer known: counts of it, or of what it replaced, were "
            f"pruned at {self.pruned_at:%Y-%m-%d %H:%M:%S} UTC"
        )

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to count."""
        return self.state is ReplayState.DONE


def list_replays(ctx: Context, pipeline: str, *, limit: int) -> ReplaysView:
    """The pipeline's replays, newest first.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        limit: The largest number of replays.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = replays.list_replays(tx, pipeline, limit=limit)
    return ReplaysView(pipeline=pipeline, replays=tuple(found))


def replay(ctx: Context, replay_id: int) -> ReplayRecord:
    """One replay, as the ledger has it now.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
    """
    with ctx.database.transaction(read_only=True) as tx:
        return replays.find_replay(tx, replay_id)


def run_replay(ctx: Context, replay_id: int) -> Iterator[Ran]:
    """Run the planned batches of a replay, one after another, or those of many partitions at once.

    Yields:
        The outcome of each batch, as soon as it is committed.

    Raises:
        UnknownReplayError: The ledger has no such replay.
        FencedError: Another process runs it.
        DataLossError: Kafka no longer serves what was planned; what was counted stays.
        RetryableError: A server did not answer; call it again.
    """
    with ctx.database.transaction(read_only=True) as tx:
        replays.find_replay(tx, replay_id)
    while True:
        with ctx.database.transaction(read_only=True) as tx:
            left = replays.planned_batches(tx, replay_id)
            now = together(batches.find_batches(tx, left), left[0]) if left else []
        if not now:
            return
        yield from run_batches(ctx, [batch.batch_id for batch in now])


def replay_outcome(ctx: Context, replay_id: int, *, with_changes: bool = True) -> ReplayOutcome:
    """The outcome of a replay.

    Args:
        ctx: What is needed from outside.
        replay_id: The ledger's key.
        with_changes: Whether what it has changed is added up, which takes longest.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = replays.find_replay(tx, replay_id)
        return view_of(
            ReplayOutcome,
            found,
            **replays.totals_of(tx, found.pipeline, replay_id),
            changes=changes_of(tx, found) if with_changes else None,
        )
