"""``plan`` and ``run``: fix which offsets a batch reads, count it and commit it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from tally.cli import completion, options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.session import shared_session
from tally.cli.ui.output import Meter, Output
from tally.cli.ui.values import sums
from tally.context import Context
from tally.counting import plan as planning
from tally.counting import run as running
from tally.counting.outcomes import RanView, RunsView, RunView
from tally.counting.plan import PlanView
from tally.each import for_each
from tally.errors import EXIT_OK, UsageError
from tally.formatting import plural
from tally.planning.blocks import blocked_error
from tally.reading import columns
from tally.replay.run import replan_batch


@command(
    examples=[
        "tally plan",
        "tally plan error_log --dry-run",
        "tally plan error_log --json | jq .batches[].batch_id",
    ],
    document=PlanView,
)
@options.pipeline
@options.dry_run
def plan(app: App, pipeline: str | None, dry_run: bool) -> None:
    """Fix which offsets the next batch reads.

    Asks Kafka for new records and stores their ranges in the ledger; they never change after that.
    A batch that was planned before and is not committed yet is resumed unchanged. With delivery =
    "partition" each partition has a batch of its own. Partitions on which Kafka and the ledger
    disagree are left out and named, with exit code 4; the others are planned.
    """
    view = planning.plan(app.context, app.pipeline(pipeline), dry_run=dry_run)
    app.out.result(view, _show_plan)
    view.check_unblocked()


def _show_plan(out: Output, view: PlanView) -> None:
    for cause in view.abandoned:
        verb = "would be" if view.dry_run else "is"
        out.line(f"the open batch {verb} abandoned: {cause}")
    out.line(view.title)
    if view.batches:
        out.records(columns.RANGE, view.ranges)


@command(
    examples=["tally run", "tally run 42", "tally run --pipeline error_log --all"],
    document=RunView,
    several=RunsView,
)
@click.argument(
    "batch_id",
    metavar="[BATCH]",
    type=options.Number("the number of a batch; name a pipeline with --pipeline"),
    required=False,
    shell_complete=completion.batches,
)
@click.option(
    "--pipeline",
    metavar="NAME",
    shell_complete=completion.pipelines,
    help="Run the next batch of this pipeline alone, without BATCH.",
)
@click.option(
    "--all", "run_all", is_flag=True, help="Run batches until it has caught up, without BATCH."
)
def run(app: App, batch_id: int | None, pipeline: str | None, run_all: bool) -> int:
    """Count a batch and commit it.

    With BATCH, runs that batch; if it is committed already, reports so and changes nothing. Without
    BATCH, plans the next batch of each pipeline, or resumes the open one, and runs it; with --all
    one after another, until everything is counted that Kafka held at the last plan. An error of one
    pipeline does not stop the others.

    Exit code 4 when partitions are blocked; the others were counted.
    """
    if batch_id is not None and (pipeline or run_all):
        raise UsageError(
            "BATCH takes neither --pipeline nor --all: leave them out",
            next_step=f"tally run {batch_id}",
        )
    names = app.chosen(pipeline) if batch_id is None else []
    if len(names) > 1:
        return _run_all(app, names, until_caught_up=run_all)
    with _counting(app) as (ctx, meter):
        if batch_id is None:
            view = _run_next(app, ctx, meter, app.pipeline(names[0]), until_caught_up=run_all)
        else:
            show = _shown(app, meter)
            view = _noted(app, running.run(ctx, [batch_id], replan=replan_batch, on_batch=show))
    if app.out.as_json:
        app.out.view(view)
    elif not view.batches:
        app.out.line("nothing to run" if view.blocks else "nothing new")
    view.check_unblocked()
    return EXIT_OK


@contextmanager
def _counting(app: App) -> Iterator[tuple[Context, Meter]]:
    """Spark, and what shows on a terminal how far the batch is that is being counted."""
    with (
        app.out.progress("counting", "offsets", elsewhere=False) as meter,
        shared_session(app, meter.update) as ctx,
    ):
        yield ctx, meter


def _run_all(app: App, names: list[str], *, until_caught_up: bool) -> int:
    """Run several pipelines; returns the exit code."""
    with _counting(app) as (ctx, meter):
        each = for_each(
            names,
            lambda name: _run_next(app, ctx, meter, name, until_caught_up=until_caught_up),
        )
    for view in each.done:
        if view.pipeline is not None and view.blocks:
            each.errors[view.pipeline] = blocked_error(view.pipeline, view.blocks)
        elif not view.batches and not app.out.as_json:
            app.out.line(f"{view.pipeline}: nothing new")
    if app.out.as_json:
        app.out.view(RunsView(runs=tuple(each.done), errors=each.views))
    return app.finish(each)


def _run_next(app: App, ctx: Context, meter: Meter, name: str, *, until_caught_up: bool) -> RunView:
    view = running.run_pipeline(
        ctx,
        name,
        replan=replan_batch,
        until_caught_up=until_caught_up,
        on_batch=_shown(app, meter),
        on_abandoned=lambda why: app.out.note(f"the open batch is abandoned: {why}"),
    )
    return _noted(app, view)


def _shown(app: App, meter: Meter) -> Callable[[RanView], None]:
    def show(ran: RanView) -> None:
        meter.clear()
        if not app.out.as_json:
            _show_run(app.out, ran)

    return show


def _noted(app: App, view: RunView) -> RunView:
    if view.unmatched:
        topic = app.settings.pipeline(view.batches[0].pipeline).topics[0]
        app.out.note(
            f"none of {plural(view.unmatched, 'well-formed line')} matched; if that is a "
            f"surprise, tally format try {topic} shows the levels of such lines"
        )
    return view


def _show_run(out: Output, ran: RanView) -> None:
    if ran.committed_before:
        out.line(f"batch {ran.batch_id} of {ran.pipeline} {ran.before}")
        return
    out.line(
        f"batch {ran.batch_id} of {ran.pipeline} is committed: "
        f"{sums(ran.records, ran.matched, ran.malformed, ran.continuations)}, {ran.seconds:.1f} s"
    )
    out.records(columns.COUNTED_RANGE, ran.ranges)
