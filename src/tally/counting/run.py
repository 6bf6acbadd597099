"""Running batches: those that were planned, a pipeline's next ones, or all that wait."""

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally import errors
from tally.context import Context
from tally.counting.batch import Outcomes, run_planned
from tally.counting.outcomes import Ran
from tally.counting.plan import plan
from tally.counting.replan import replan_batch
from tally.errors import OvertakenError, TallyError
from tally.ledger.batches import Requester, find_batches
from tally.ledger.records import batch_record
from tally.ledger.replays import standing_for_all
from tally.model import EMPTY_TOTALS, Batch, BatchKind
from tally.planning.blocks import Block
from tally.views import ErrorView

REPLANS_MAX: Final = 5
"""How often a batch is replanned after conflicts with other replays; the next one is an error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
    """What a run has counted."""

    pipeline: str | None
    """The pipeline; null when a batch was named."""
    batches: tuple[Ran, ...]
    """The batches, in the order in which they were run."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""

    @property
    def unmatched(self) -> int:
        """Well-formed lines that were read, when not one of them was counted; 0 otherwise."""
        total = sum((batch.total for batch in self.batches), EMPTY_TOTALS)
        return 0 if total.matched else total.unmatched - (total.continuations or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunsView:
    """What runs of several pipelines have counted."""

    runs: tuple[RunView, ...]
    """The runs of the pipelines that could be counted."""
    errors: Mapping[str, ErrorView]
    """Why another pipeline could not be counted, or what of one is blocked, by name."""


def run_batches(ctx: Context, batch_ids: Sequence[int]) -> Iterator[Ran]:
    """Run planned batches, and commit each; all have their turn before an error is raised.

    For a batch that was replanned before, its replacements are run, and a replay's batch is
    replanned when another replay came first. Batches of single partitions are run in one Spark job.

    Args:
        ctx: What is needed from outside; a reader is opened only when there is something to read.
        batch_ids: The ledger's keys.

    Yields:
        The outcome of each batch that is committed, also where another one fails: several for one
        that was replanned as several.

    Raises:
        FencedError: Another process runs one of them, or it was abandoned.
        DataLossError: Kafka no longer serves what was planned; what was counted stays.
        RetryableError: A server did not answer; call it again.
    """
    with ctx.database.transaction(read_only=True) as tx:
        todo, failed = standing_for_all(tx, batch_ids)
    replanned: dict[int, int] = {}
    while todo:
        with ctx.database.transaction(read_only=True) as tx:
            now = together(find_batches(tx, todo), todo[0])
        outcomes = _run(ctx, now)
        yield from (ran for ran in outcomes.values() if isinstance(ran, Ran))
        begun = {batch.batch_id for batch in now}
        todo = [batch_id for batch_id in todo if batch_id not in begun]
        not_done = {n: error for n, error in outcomes.items() if isinstance(error, TallyError)}
        for batch_id, error in not_done.items():
            before = replanned.get(batch_id, 0)
            if not isinstance(error, OvertakenError) or before == REPLANS_MAX:
                failed[batch_id] = error
                continue
            try:
                again = replan_batch(ctx, batch_id)
            except TallyError as refused:
                failed[batch_id] = refused
            else:
                replanned |= dict.fromkeys(again, before + 1)
                todo = [*again, *todo]
    if failed:
        raise worst_of(failed)


def worst_of(failed: Mapping[int, TallyError]) -> TallyError:
    """The error of the worst failure, with the others in its sentence."""
    worst = max(failed, key=lambda batch_id: _severity(failed[batch_id]))
    others = [f"batch {n}: [{e.code}] {e.what}" for n, e in failed.items() if n != worst]
    if not others:
        return failed[worst]
    error = copy.copy(failed[worst])
    error.what = f"{error.what}; besides, {'; '.join(others)}"
    return error


def _severity(error: TallyError) -> int:
    """Higher where waiting helps less."""
    if isinstance(error, errors.OperatorError | errors.UsageError):
        return 2
    return 0 if isinstance(error, errors.RetryableError | errors.OutcomeUnknownError) else 1


def together(found: Sequence[Batch], first: int) -> list[Batch]:
    """Which of some batches are run next: one, or with one of a single partition its likes.

    A batch has no segments any more where they were pruned.
    """
    (now,) = [batch for batch in found if batch.batch_id == first]
    if not now.is_of_partition or not now.segments:
        return [now]
    likes = {now.segments[0].range.partition: now}
    for batch in found:
        if batch.is_of_partition and batch.segments and batch.pipeline == now.pipeline:
            likes.setdefault(batch.segments[0].range.partition, batch)
    return list(likes.values())


def _run(ctx: Context, now: Sequence[Batch]) -> Outcomes:
    try:
        return run_planned(ctx, [batch.batch_id for batch in now])
    except TallyError as error:
        if len(now) > 1:
            raise
        return {now[0].batch_id: error}


def run_pipeline(
    ctx: Context,
    name: str,
    *,
    until_caught_up: bool,
    on_batch: Callable[[Ran], None],
    on_abandoned: Callable[[str], None],
) -> RunView:
    """Plan a pipeline's next batch, or resume the open one, then count and commit it.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        until_caught_up: Whether to continue until everything is counted that Kafka held at the last
            plan.
        on_batch: Called with each batch when it is committed.
        on_abandoned: Called with the reason when an open batch had to be abandoned.

    Raises:
        TallyError: As :func:`run_batches` and :func:`tally.counting.plan.plan`; what was committed
            before stays.
    """
    done: list[Ran] = []
    while True:
        planned = plan(ctx, name)
        for cause in planned.abandoned:
            on_abandoned(cause)
        if planned.batches:
            for ran in run_batches(ctx, planned.batch_ids):
                done.append(ran)
                on_batch(ran)
        # A resumed batch does not say what Kafka holds now.
        if not until_caught_up or not (planned.resumed or _are_cut(ctx, planned.batch_ids)):
            return RunView(pipeline=name, batches=tuple(done), blocks=planned.blocks)


def _are_cut(ctx: Context, batch_ids: Sequence[int]) -> bool:
    if not batch_ids:
        return False
    with ctx.database.transaction(read_only=True) as tx:
        found = find_batches(tx, batch_ids)
    return are_cut(found, ctx.settings.pipeline(found[0].pipeline).max_records_per_partition)


def are_cut(batches: Iterable[Batch], max_records_per_partition: int) -> bool:
    """Whether batches may have left records: at the size limit, or behind an accepted hole.

    A hole is read by itself, however small it is.
    """
    return any(
        segment.range.offsets >= max_records_per_partition or segment.missing_accepted
        for batch in batches
        for segment in batch.segments
    )


def run_and_catch_up(ctx: Context, batch_ids: Sequence[int], within: timedelta) -> Iterator[Ran]:
    """Count planned batches; while a minute batch was cut at its size limit, also what is next.

    Also behind an accepted hole, which is read by itself. For a scheduler that would otherwise
    count one batch of a backlog with each start. Each batch is planned, claimed and committed like
    any other, and recorded for the run that planned the first one. One that somebody else has
    planned meanwhile is left to them.

    Args:
        ctx: What is needed from outside.
        batch_ids: The ledger's keys of the first batches, of one pipeline.
        within: No batch is begun that would end later than that, judged by the longest one before.

    Yields:
        The outcome of each batch, when it is committed.

    Raises:
        TallyError: As :func:`run_batches`; what was committed before stays.
    """
    begun, longest_s = ctx.clock.monotonic(), 0.0
    todo = batch_ids
    while True:
        ran: list[Ran] = []
        for one in run_batches(ctx, todo):
            ran.append(one)
            yield one
        longest_s = max([longest_s, *(one.seconds for one in ran)])
        ends_s = ctx.clock.monotonic() - begun + longest_s
        if all(one.committed_before for one in ran) or ends_s > within.total_seconds():
            return
        if not _are_cut(ctx, [one.batch_id for one in ran]):
            return
        with ctx.database.transaction(read_only=True) as tx:
            first = batch_record(tx, max(batch_ids))
        if first.kind is not BatchKind.INGEST:
            return
        requester = Requester(
            name=first.requested_by, version=ctx.requester.version, run_id=first.run_id
        )
        planned = plan(dataclasses.replace(ctx, requester=requester), first.pipeline)
        if not planned.batches or planned.resumed:
            return
        todo = planned.batch_ids
