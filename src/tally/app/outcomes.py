"""The outcome of a batch, or of the batches that were planned in its place."""

from collections.abc import Mapping
from dataclasses import dataclass

from tally.app.views import RangeView
from tally.ledger.reading import batch_record, caught_up_behind, segments_of
from tally.ledger.replay_runs import standing_for
from tally.model import BatchState
from tally.pipeline.context import Context


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchOutcome:
    """What a batch read and counted."""

    batch_id: int
    """The requested batch."""
    pipeline: str
    """Its pipeline."""
    standing: tuple[int, ...]
    """The batches that count its ranges: itself, or those that were planned in its place."""
    followed_by: tuple[int, ...]
    """Committed batches of the same run that caught up behind it."""
    is_committed: bool
    """Whether all of these are committed. What follows is of all of them."""
    ranges: tuple[RangeView, ...]
    """What they read."""
    offsets: int
    """Offsets they span."""
    records: int
    """Records read."""
    matched: int
    """Lines counted."""
    malformed: int
    """Records that could not be understood."""
    steps: Mapping[str, float]
    """Where its time went (:attr:`tally.ledger.reading.BatchRecord.steps`); of several batches,
    that of the last."""

    @property
    def is_replanned(self) -> bool:
        """Whether other batches were planned in its place."""
        return self.standing != (self.batch_id,)


def batch_outcome(ctx: Context, batch_id: int) -> BatchOutcome:
    """The outcome of a batch.

    Raises:
        UnknownBatchError: The ledger has no batch with this id.
        FencedError: It was abandoned, and nothing counts all of its ranges in its place.
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        standing = standing_for(tx, batch_id)
        later = caught_up_behind(tx, batch_id)
        records = [batch_record(tx, number) for number in (*standing, *later)]
        ranges = [RangeView.of(s.range) for r in records for s in segments_of(tx, r.batch_id)]
    return BatchOutcome(
        batch_id=batch_id,
        pipeline=records[-1].pipeline,
        standing=tuple(standing),
        followed_by=tuple(later),
        is_committed=all(record.state is BatchState.COMMITTED for record in records),
        ranges=tuple(ranges),
        offsets=sum(record.offsets for record in records),
        records=sum(record.records or 0 for record in records),
        matched=sum(record.matched or 0 for record in records),
        malformed=sum(record.malformed or 0 for record in records),
        steps=records[-1].steps,
    )
