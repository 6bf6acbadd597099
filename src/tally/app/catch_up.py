"""Counting back to back after a standstill: a batch that was planned, then those behind it."""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import timedelta

from tally.app.run import RanView, RunRequest, is_cut, run
from tally.ledger.batches import Requester
from tally.ledger.reading import batch_record
from tally.model import BatchKind
from tally.pipeline.context import Context
from tally.pipeline.plan import plan_batch


def run_and_catch_up(
    ctx: Context,
    batch_id: int,
    within: timedelta,
    *,
    on_batch: Callable[[RanView], None] = lambda _: None,
) -> tuple[RanView, ...]:
    """Count a planned batch; while a minute batch was cut at its size limit, also the next one.

    For a scheduler that would otherwise count one batch of a backlog with each start. Each batch is
    planned, claimed and committed like any other, and recorded for the run that planned the first
    one. One that somebody else has planned meanwhile is left to them.

    Args:
        ctx: What is needed from outside.
        batch_id: The ledger's key of the first batch.
        within: No batch is begun that would end later than that, judged by the longest one before.
        on_batch: Called with each batch when it is committed.

    Raises:
        TallyError: As :func:`tally.app.run.run`; what was committed before stays.
    """
    begun = ctx.clock.monotonic()
    done = [*run(ctx, RunRequest(batch_id=batch_id), on_batch=on_batch).batches]
    if not _may_go_on(ctx, done, within, begun):
        return tuple(done)
    with ctx.database.transaction(read_only=True) as tx:
        first = batch_record(tx, batch_id)
    requester = Requester(
        name=first.requested_by, version=ctx.requester.version, run_id=first.run_id
    )
    planner = dataclasses.replace(ctx, requester=requester)
    while first.kind is BatchKind.INGEST and _may_go_on(ctx, done, within, begun):
        planned = plan_batch(planner, first.pipeline)
        if planned.batch is None or planned.resumed:
            break
        request = RunRequest(batch_id=planned.batch.batch_id)
        done += run(ctx, request, on_batch=on_batch).batches
    return tuple(done)


def _may_go_on(ctx: Context, done: Sequence[RanView], within: timedelta, begun: float) -> bool:
    """Whether the last batch may have left records, and there is time for another one."""
    if not done or done[-1].committed_before:
        return False
    limit = ctx.settings.pipeline(done[-1].pipeline).max_records_per_partition
    ends_s = ctx.clock.monotonic() - begun + max(batch.seconds for batch in done)
    sizes = [r.offsets for r in done[-1].ranges]
    return is_cut(sizes, limit) and ends_s <= within.total_seconds()
