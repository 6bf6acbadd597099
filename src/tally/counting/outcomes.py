"""What the ledger knows of batches that were to be run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tally.context import Context
from tally.ledger.records import batch_record, caught_up_behind, segments_of
from tally.ledger.replays import standing_for_all
from tally.model import BatchState, OffsetRange


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchOutcome:
    """What some batches of a pipeline read and counted."""

    batch_ids: tuple[int, ...]
    """The requested batches."""
    pipeline: str
    """Their pipeline."""
    standing: tuple[int, ...]
    """The batches that count their ranges: themselves, or those that were planned in their
    place."""
    followed_by: tuple[int, ...]
    """Committed batches of the same run that caught up behind it."""
    is_committed: bool
    """Whether all of these are committed. What follows is of all of them."""
    abandoned: tuple[str, ...]
    """The errors of those of several requested batches that were abandoned."""
    ranges: tuple[OffsetRange, ...]
    """What they read."""
    offsets: int
    """Offsets they span."""
    records: int
    """Records read."""
    matched: int
    """Lines counted."""
    malformed: int
    """Records that could not be understood."""
    continuations: int
    """Unmatched records that begin no line, as far as they were counted by themselves."""
    steps: Mapping[str, float]
    """Where its time went (:attr:`tally.ledger.records.BatchRecord.steps`); of several batches,
    that of the last."""

    @property
    def is_replanned(self) -> bool:
        """Whether other batches were planned in the place of one."""
        return not set(self.standing) <= set(self.batch_ids)


def batch_outcome(ctx: Context, batch_ids: Sequence[int]) -> BatchOutcome:
    """The outcome of batches of one pipeline.

    Raises:
        UnknownBatchError: The ledger has no batch with one of these ids.
        FencedError: All were abandoned, and nothing counts all of their ranges in their place.
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        standing, abandoned = standing_for_all(tx, batch_ids)
        if not standing:
            raise next(iter(abandoned.values()))
        later = caught_up_behind(tx, max(batch_ids))
        records = [batch_record(tx, number) for number in (*standing, *later)]
        ranges = [s.range for r in records for s in segments_of(tx, r.batch_id)]
    return BatchOutcome(
        batch_ids=tuple(batch_ids),
        pipeline=records[-1].pipeline,
        standing=tuple(standing),
        followed_by=tuple(later),
        is_committed=all(record.state is BatchState.COMMITTED for record in records),
        abandoned=tuple(map(str, abandoned.values())),
        ranges=tuple(ranges),
        offsets=sum(record.offsets for record in records),
        records=sum(record.records or 0 for record in records),
        matched=sum(record.matched or 0 for record in records),
        malformed=sum(record.malformed or 0 for record in records),
        continuations=sum(record.continuations or 0 for record in records),
        steps=records[-1].steps,
    )
