"""The outcome of batches: of one that was run here, and what the ledger knows of some."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tally.context import Context
from tally.ledger.batches import committed_of
from tally.ledger.records import BatchRecord, batch_record, caught_up_behind, segments_of
from tally.ledger.replays import standing_for_all
from tally.model import EMPTY_TOTALS, Batch, BatchState, OffsetRange, SegmentTotals, TopicPartition
from tally.views import CountedRange, view_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """The outcome of a batch that was run."""

    batch_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline."""
    attempt: int
    """The attempt that counted it."""
    claimed_by: str | None
    """Who began that attempt."""
    committed_before: bool
    """Whether another call has committed it; then the ranges have no counts."""
    seconds: float
    """Seconds from the claim to the commit."""
    ranges: tuple[CountedRange, ...]
    """The ranges that it read, with their counts."""

    @classmethod
    def of(
        cls, batch: Batch, totals: Mapping[TopicPartition, SegmentTotals] | None, seconds: float = 0
    ) -> Self:
        """The outcome of a batch with what each range held; None where another call committed."""
        found = totals or {}
        return view_of(
            cls,
            batch,
            committed_before=totals is None,
            seconds=round(seconds, 3),
            ranges=tuple(
                CountedRange(range=s.range, totals=found.get(s.range.partition))
                for s in batch.segments
            ),
        )

    @property
    def committed(self) -> bool:
        """Whether this call has committed it."""
        return not self.committed_before

    @property
    def before(self) -> str:
        """That it was committed before, and by whom."""
        return f"was committed before, by attempt {self.attempt} of {self.claimed_by}"

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return sum(r.range.offsets for r in self.ranges)

    @property
    def total(self) -> SegmentTotals:
        """What this run has read and counted."""
        return sum((r.totals for r in self.ranges if r.totals), EMPTY_TOTALS)


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
    total: SegmentTotals
    """What was found."""
    records: tuple[BatchRecord, ...]
    """All of these, as the ledger has them."""

    @property
    def steps(self) -> Mapping[str, float]:
        """Where the time of the last one went."""
        return self.records[-1].steps

    @property
    def is_replanned(self) -> bool:
        """Whether other batches were planned in the place of one."""
        return not set(self.standing) <= set(self.batch_ids)


def committed_among(ctx: Context, pipeline: str, batch_ids: Sequence[int]) -> list[int]:
    """Which of some batches a pipeline has committed; a ledger that was restored may lack some.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    if not batch_ids:
        return []
    with ctx.database.transaction(read_only=True) as tx:
        return committed_of(tx, pipeline, batch_ids)


def batch_outcome(ctx: Context, batch_ids: Sequence[int]) -> BatchOutcome:
    """The outcome of batches of one pipeline.

    Raises:
        UnknownBatchError: The ledger has no batch with one of these ids.
        FencedError: All were abandoned, and nothing counts all of their ranges in their place.
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        standing, abandoned = standing_for_all(tx, batch_ids)
        if not standing:
            raise next(iter(abandoned.values()))
        # Each may be of another try.
        later = sorted({*caught_up_behind(tx, batch_ids)} - {*batch_ids, *standing})
        records = [batch_record(tx, number) for number in (*standing, *later)]
        segments = [s for r in records for s in segments_of(tx, r.batch_id)]
    return BatchOutcome(
        batch_ids=tuple(batch_ids),
        pipeline=records[-1].pipeline,
        standing=tuple(standing),
        followed_by=tuple(later),
        is_committed=all(record.state is BatchState.COMMITTED for record in records),
        abandoned=tuple(map(str, abandoned.values())),
        ranges=tuple(s.range for s in segments),
        offsets=sum(record.offsets for record in records),
        total=sum((s.totals for s in segments if s.totals), EMPTY_TOTALS),
        records=tuple(records),
    )
