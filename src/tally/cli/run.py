"""``run``: count a batch, or one after another, and commit."""

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, pass_app
from tally.cli.session import shared_session
from tally.cli.shapes import block_shape, ran_shape
from tally.cli.ui.values import number, span
from tally.errors import UsageError
from tally.formatting import plural
from tally.pipeline.context import Context
from tally.pipeline.plan import Planned, plan_batch
from tally.pipeline.run import Ran, run_batch
from tally.planning.blocks import Block, blocked_error


@click.command(
    cls=Command, examples=["tally run", "tally run 42", "tally run --pipeline error_log --all"]
)
@click.argument("batch_id", metavar="[BATCH]", type=click.IntRange(min=1), required=False)
@click.option("--pipeline", metavar="NAME", help="Whose next batch to run, without BATCH.")
@click.option("--all", "run_all", is_flag=True, help="Go on until it has caught up, without BATCH.")
@json_option
@pass_app
def run(app: App, batch_id: int | None, pipeline: str | None, run_all: bool) -> None:
    """Count a batch and commit it.

    With BATCH: that one; if it is committed already it says so and changes nothing. Without: plans
    the pipeline's next batch, or takes up the open one, and runs it; with --all batch after batch,
    until everything is counted that Kafka held when the last one was planned. Spark runs in this
    process. It is safe to run a batch again, at any time and as often as you like.

    Exit code 4 when partitions are blocked; the others were counted.
    """
    if batch_id is not None and (pipeline or run_all):
        raise UsageError("BATCH says it all: leave --pipeline and --all out")
    with shared_session(app) as ctx:
        if batch_id is not None:
            _finish(app, [_run_one(app, ctx, batch_id)], None)
        else:
            _run_next(app, ctx, app.pipeline(pipeline), run_all=run_all)


def _run_next(app: App, ctx: Context, pipeline: str, *, run_all: bool) -> None:
    done: list[Ran] = []
    while True:
        planned = plan_batch(app.context, pipeline)
        for cause in planned.abandoned:
            app.out.note(f"the open batch was given up: {cause}")
        if planned.batch is None:
            break
        done.append(_run_one(app, ctx, planned.batch.batch_id))
        limit = app.settings.pipeline(pipeline).max_records_per_partition
        if not run_all or has_caught_up(planned, limit):
            break
    _finish(app, done, planned)


def has_caught_up(planned: Planned, max_records_per_partition: int) -> bool:
    """Whether nothing was left in Kafka when the batch was planned.

    A batch that was planned earlier says nothing about now; one that was cut leaves a rest.
    """
    if planned.batch is None:
        return True
    cut = any(s.range.offsets >= max_records_per_partition for s in planned.batch.segments)
    return not planned.resumed and not cut


def _run_one(app: App, ctx: Context, batch_id: int) -> Ran:
    ran = run_batch(ctx, batch_id)
    if not app.out.as_json:
        _show_ran(app, ran)
    return ran


def _finish(app: App, done: list[Ran], planned: Planned | None) -> None:
    blocks: tuple[Block, ...] = planned.blocks if planned else ()
    if app.out.as_json:
        app.out.document(
            {
                "batches": [ran_shape(ran) for ran in done],
                "blocks": [block_shape(block) for block in blocks],
            }
        )
    elif not done:
        app.out.line("nothing to run" if blocks else "nothing new")
    if planned and blocks:
        raise blocked_error(planned.pipeline, blocks)


def _show_ran(app: App, ran: Ran) -> None:
    batch = ran.batch
    if not ran.committed:
        app.out.line(f"batch {batch.batch_id} of {batch.pipeline} was committed before")
        return
    totals = ran.totals.values()
    records = sum(t.records for t in totals)
    app.out.line(
        f"batch {batch.batch_id} of {batch.pipeline} is committed: {plural(records, 'record')}, "
        f"{number(sum(t.matched for t in totals))} matched, "
        f"{number(sum(t.malformed for t in totals))} malformed, {ran.seconds:.1f} s"
    )
    app.out.table(
        ["PARTITION", "RANGE", "RECORDS", "MATCHED", "MALFORMED"],
        [
            [
                str(r.partition),
                span(r.from_offset, r.until_offset),
                number(ran.totals[r.partition].records),
                number(ran.totals[r.partition].matched),
                number(ran.totals[r.partition].malformed),
            ]
            for r in (segment.range for segment in batch.segments)
        ],
        numbers=["RECORDS", "MATCHED", "MALFORMED"],
    )
