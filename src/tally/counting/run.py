"""Running batches: those that were planned, a pipeline's next ones, or all that wait."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from tally.context import Context
from tally.counting.batch import Ran, run_batch
from tally.counting.outcomes import RanView, RunView
from tally.counting.partitions import Outcomes, run_partitions, worst_of
from tally.counting.plan import Planned, plan_batch
from tally.errors import FencedError, OvertakenError, TallyError
from tally.ledger.batches import Requester, find_batches
from tally.ledger.records import batch_record
from tally.ledger.replays import standing_for
from tally.model import Batch, BatchKind

# How many conflicts with other replays in a row lead to a replanned batch; the next is an error.
OVERTAKEN_TRIES: Final = 5

Replan = Callable[[Context, int], Sequence[int]]
"""Plans a replay's batch anew when another replay came first; returns the batches in its place."""


def run_batches(
    ctx: Context,
    batch_ids: Sequence[int],
    *,
    replan: Replan,
    on_ran: Callable[[Ran], None] = lambda _: None,
) -> list[Ran]:
    """Run planned batches, and commit each; all have their turn before an error is raised.

    For a batch that was replanned before, its replacements are run. Batches of single partitions
    are run in one Spark job.

    Args:
        ctx: What is needed from outside; a reader is opened only when there is something to read.
        batch_ids: The ledger's keys.
        replan: Called for a replay's batch when another replay came first; what it plans is run.
        on_ran: Called with each batch that is committed, also where another one fails.

    Returns:
        The outcome of each batch that was run: several for one that was replanned as several.

    Raises:
        FencedError: Another process runs one of them, or it was abandoned.
        DataLossError: Kafka no longer serves what was planned; what was counted stays.
        RetryableError: A server did not answer; call it again.
    """
    done: list[Ran] = []
    failed: dict[int, TallyError] = {}
    todo = _standing(ctx, batch_ids, failed)
    rounds = 0
    while todo:
        with ctx.database.transaction(read_only=True) as tx:
            now = together(find_batches(tx, todo), todo[0])
        outcomes = _run(ctx, now)
        for ran in outcomes.done:
            done.append(ran)
            on_ran(ran)
        todo = [batch_id for batch_id in todo if batch_id not in {b.batch_id for b in now}]
        rounds += any(isinstance(error, OvertakenError) for error in outcomes.failed.values())
        for batch_id, error in outcomes.failed.items():
            if not isinstance(error, OvertakenError) or rounds == OVERTAKEN_TRIES:
                failed[batch_id] = error
                continue
            try:
                todo = [*replan(ctx, batch_id), *todo]
            except TallyError as refused:
                failed[batch_id] = refused
    if failed:
        raise worst_of(failed)
    return done


def _standing(ctx: Context, batch_ids: Sequence[int], failed: dict[int, TallyError]) -> list[int]:
    """The batches that count the ranges of some batches; abandoned ones are noted as failed."""
    todo: list[int] = []
    with ctx.database.transaction(read_only=True) as tx:
        for batch_id in batch_ids:
            try:
                todo += standing_for(tx, batch_id)
            except FencedError as error:
                failed[batch_id] = error
    return todo


def together(found: Sequence[Batch], first: int) -> list[Batch]:
    """Which of some batches are run next: one, or with one of a single partition its likes."""
    (now,) = [batch for batch in found if batch.batch_id == first]
    if not now.is_of_partition:
        return [now]
    likes = {now.segments[0].range.partition: now}
    for batch in found:
        if batch.is_of_partition and batch.pipeline == now.pipeline:
            likes.setdefault(batch.segments[0].range.partition, batch)
    return list(likes.values())


def _run(ctx: Context, now: Sequence[Batch]) -> Outcomes:
    batch_ids = [batch.batch_id for batch in now]
    if now[0].is_of_partition:
        return run_partitions(ctx, batch_ids)
    try:
        return Outcomes(done=[run_batch(ctx, batch_ids[0])])
    except TallyError as error:
        return Outcomes(failed={batch_ids[0]: error})


def run(
    ctx: Context,
    batch_ids: Sequence[int],
    *,
    replan: Replan,
    on_batch: Callable[[RanView], None] = lambda _: None,
) -> RunView:
    """Count planned batches, and commit each.

    Args:
        ctx: What is needed from outside.
        batch_ids: The ledger's keys.
        replan: As in :func:`run_batches`.
        on_batch: Called with each batch when it is committed.

    Raises:
        TallyError: As :func:`run_batches`; what was committed before stays.
    """
    done: list[RanView] = []

    def note(ran: Ran) -> None:
        done.append(RanView.of(ran))
        on_batch(done[-1])

    run_batches(ctx, batch_ids, replan=replan, on_ran=note)
    return RunView(pipeline=None, batches=tuple(done), blocks=())


def run_pipeline(
    ctx: Context,
    name: str,
    *,
    replan: Replan,
    until_caught_up: bool = False,
    on_batch: Callable[[RanView], None] = lambda _: None,
    on_abandoned: Callable[[str], None] = lambda _: None,
) -> RunView:
    """Plan a pipeline's next batch, or resume the open one, then count and commit it.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        replan: As in :func:`run_batches`.
        until_caught_up: Whether to continue until everything is counted that Kafka held at the last
            plan.
        on_batch: Called with each batch when it is committed.
        on_abandoned: Called with the reason when an open batch had to be abandoned.

    Raises:
        TallyError: As :func:`run_batches` and :func:`tally.counting.plan.plan_batch`; what was
            committed before stays.
    """
    limit = ctx.settings.pipeline(name).max_records_per_partition
    done: list[RanView] = []
    while True:
        planned = plan_batch(ctx, name)
        for cause in planned.abandoned:
            on_abandoned(cause)
        ids = [batch.batch_id for batch in planned.batches]
        if ids:
            done += run(ctx, ids, replan=replan, on_batch=on_batch).batches
        if not until_caught_up or has_caught_up(planned, limit):
            return RunView(pipeline=name, batches=tuple(done), blocks=planned.blocks)


def has_caught_up(planned: Planned, max_records_per_partition: int) -> bool:
    """Whether nothing was left in Kafka when the batches were planned.

    A resumed batch does not say what Kafka holds now.
    """
    if not planned.batches:
        return True
    return not planned.resumed and not are_cut(planned.batches, max_records_per_partition)


def are_cut(batches: Iterable[Batch], max_records_per_partition: int) -> bool:
    """Whether batches may have left records: at the size limit, or behind an accepted hole.

    A hole is read by itself, however small it is.
    """
    return any(
        segment.range.offsets >= max_records_per_partition or segment.missing_accepted
        for batch in batches
        for segment in batch.segments
    )


def run_and_catch_up(
    ctx: Context,
    batch_ids: Sequence[int],
    within: timedelta,
    *,
    replan: Replan,
    on_batch: Callable[[RanView], None] = lambda _: None,
) -> tuple[RanView, ...]:
    """Count planned batches; while a minute batch was cut at its size limit, also what is next.

    Also behind an accepted hole, which is read by itself. For a scheduler that would otherwise
    count one batch of a backlog with each start. Each batch is planned, claimed and committed like
    any other, and recorded for the run that planned the first one. One that somebody else has
    planned meanwhile is left to them.

    Args:
        ctx: What is needed from outside.
        batch_ids: The ledger's keys of the first batches, of one pipeline.
        within: No batch is begun that would end later than that, judged by the longest one before.
        replan: As in :func:`run_batches`.
        on_batch: Called with each batch when it is committed.

    Raises:
        TallyError: As :func:`run_batches`; what was committed before stays.
    """
    begun = ctx.clock.monotonic()
    last = done = [*run(ctx, batch_ids, replan=replan, on_batch=on_batch).batches]
    if not _may_go_on(ctx, done, last, within, begun):
        return tuple(done)
    with ctx.database.transaction(read_only=True) as tx:
        first = batch_record(tx, max(batch_ids))
    requester = Requester(
        name=first.requested_by, version=ctx.requester.version, run_id=first.run_id
    )
    planner = dataclasses.replace(ctx, requester=requester)
    while first.kind is BatchKind.INGEST and _may_go_on(ctx, done, last, within, begun):
        planned = plan_batch(planner, first.pipeline)
        if not planned.batches or planned.resumed:
            break
        ids = [batch.batch_id for batch in planned.batches]
        last = [*run(ctx, ids, replan=replan, on_batch=on_batch).batches]
        done = done + last
    return tuple(done)


def _may_go_on(
    ctx: Context,
    done: Sequence[RanView],
    last: Sequence[RanView],
    within: timedelta,
    begun: float,
) -> bool:
    """Whether the last batches may have left records, and there is time for others."""
    if not last or any(batch.committed_before for batch in last):
        return False
    ends_s = ctx.clock.monotonic() - begun + max(batch.seconds for batch in done)
    if ends_s > within.total_seconds():
        return False
    with ctx.database.transaction(read_only=True) as tx:
        found = find_batches(tx, [batch.batch_id for batch in last])
    return are_cut(found, ctx.settings.pipeline(last[0].pipeline).max_records_per_partition)
