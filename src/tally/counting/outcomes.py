"""What became of batches: those that a run has counted, and those that the ledger knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from tally.context import Context
from tally.counting.batch import Ran
from tally.errors import FencedError
from tally.ledger.records import batch_record, caught_up_behind, segments_of
from tally.ledger.replays import standing_for
from tally.model import BatchState, OffsetRange
from tally.planning.blocks import Block, blocked_error
from tally.views import CountedRange, ErrorView


@dataclass(frozen=True, kw_only=True, slots=True)
class RanView:
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
    def of(cls, ran: Ran) -> Self:
        """The view of a batch that was run."""
        return cls(
            batch_id=ran.batch.batch_id,
            pipeline=ran.batch.pipeline,
            attempt=ran.batch.attempt,
            claimed_by=ran.batch.claimed_by,
            committed_before=not ran.committed,
            seconds=round(ran.seconds, 3),
            ranges=tuple(
                CountedRange(range=s.range, totals=ran.totals.get(s.range.partition))
                for s in ran.batch.segments
            ),
        )

    @property
    def before(self) -> str:
        """That it was committed before, and by whom."""
        return f"was committed before, by attempt {self.attempt} of {self.claimed_by}"

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return sum(r.range.offsets for r in self.ranges)

    @property
    def records(self) -> int:
        """Records that this run has read."""
        return sum(r.totals.records for r in self.ranges if r.totals)

    @property
    def matched(self) -> int:
        """Lines that this run has counted."""
        return sum(r.totals.matched for r in self.ranges if r.totals)

    @property
    def malformed(self) -> int:
        """Records among them that could not be understood."""
        return sum(r.totals.malformed for r in self.ranges if r.totals)

    @property
    def continuations(self) -> int:
        """Records among them that begin no line and were left out."""
        return sum(r.totals.continuations or 0 for r in self.ranges if r.totals)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """What a run has counted."""

    pipeline: str | None
    """The pipeline; null when a batch was named."""
    batches: tuple[RanView, ...]
    """The batches, in the order in which they were run."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""

    @property
    def unmatched(self) -> int:
        """Well-formed lines that were read, when not one of them was counted; 0 otherwise."""
        if any(batch.matched for batch in self.batches):
            return 0
        return sum(b.records - b.malformed - b.continuations for b in self.batches)

    def check_unblocked(self) -> None:
        """Raise while something is blocked; the other partitions were counted all the same.

        Raises:
            OperatorError: With every block and the next step.
        """
        if self.pipeline is not None and self.blocks:
            raise blocked_error(self.pipeline, self.blocks)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsView:
    """What runs of several pipelines have counted."""

    runs: tuple[RunView, ...]
    """The runs of the pipelines that could be counted."""
    errors: Mapping[str, ErrorView]
    """Why another pipeline could not be counted, or what of one is blocked, by name."""


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
        standing: list[int] = []
        abandoned: list[FencedError] = []
        for asked in batch_ids:
            try:
                standing += standing_for(tx, asked)
            except FencedError as error:
                abandoned.append(error)
        if not standing:
            raise abandoned[0]
        later = caught_up_behind(tx, max(batch_ids))
        records = [batch_record(tx, number) for number in (*standing, *later)]
        ranges = [s.range for r in records for s in segments_of(tx, r.batch_id)]
    return BatchOutcome(
        batch_ids=tuple(batch_ids),
        pipeline=records[-1].pipeline,
        standing=tuple(standing),
        followed_by=tuple(later),
        is_committed=all(record.state is BatchState.COMMITTED for record in records),
        abandoned=tuple(map(str, abandoned)),
        ranges=tuple(ranges),
        offsets=sum(record.offsets for record in records),
        records=sum(record.records or 0 for record in records),
        matched=sum(record.matched or 0 for record in records),
        malformed=sum(record.malformed or 0 for record in records),
        continuations=sum(record.continuations or 0 for record in records),
        steps=records[-1].steps,
    )
