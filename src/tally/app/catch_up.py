"""Counting back to back after a standstill: a batch that was planned, then those behind it."""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta

from tally.app.run import RanView, RunRequest, are_cut, run
from tally.ledger.batches import Requester, find_batches
from tally.ledger.reading import batch_record
from tally.model import BatchKind
from tally.pipeline.context import Context
from tally.pipeline.plan import plan_batch


def run_and_catch_up(
    ctx: Context,
    batch_ids: Sequence[int],
    within: timedelta,
    *,
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
        on_batch: Called with each batch when it is committed.

    Raises:
        TallyError: As :func:`tally.app.run.run`; what was committed before stays.
    """
    begun = ctx.clock.monotonic()
    last = done = [*run(ctx, RunRequest(batch_ids=tuple(batch_ids)), on_batch=on_batch).batches]
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
        request = RunRequest(batch_ids=tuple(batch.batch_id for batch in planned.batches))
        last = [*run(ctx, request, on_batch=on_batch).batches]
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
