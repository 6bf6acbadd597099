"""``run``: count one batch, or one after another, and commit each."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from tally.app.each import for_each
from tally.cli import completion
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import Number, json_option
from tally.cli.session import shared_session
from tally.cli.ui.output import Meter
from tally.cli.ui.values import number
from tally.context import Context
from tally.counting import run as use_case
from tally.counting.outcomes import RanView, RunsView, RunView
from tally.errors import UsageError
from tally.formatting import continued, plural
from tally.planning.blocks import blocked_error
from tally.replay.run import replan_batch


@click.command(
    cls=Command, examples=["tally run", "tally run 42", "tally run --pipeline error_log --all"]
)
@click.argument(
    "batch_id",
    metavar="[BATCH]",
    type=Number("the number of a batch; name a pipeline with --pipeline"),
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
@json_option
@click.pass_context
def run(context: click.Context, batch_id: int | None, pipeline: str | None, run_all: bool) -> None:
    """Count a batch and commit it.

    With BATCH, runs that batch; if it is committed already, reports so and changes nothing. Without
    BATCH, plans the next batch of each pipeline, or resumes the open one, and runs it; with --all
    one after another, until everything is counted that Kafka held at the last plan. An error of one
    pipeline does not stop the others. Spark runs in this process. Running a batch is idempotent.

    Exit code 4 when partitions are blocked; the others were counted.
    """
    app = context.ensure_object(App)
    if batch_id is not None and (pipeline or run_all):
        raise UsageError(
            "BATCH takes neither --pipeline nor --all: leave them out",
            next_step=f"tally run {batch_id}",
        )
    names = app.chosen(pipeline) if batch_id is None else []
    if len(names) > 1:
        context.exit(_run_all(app, names, until_caught_up=run_all))
    with _counting(app) as (ctx, meter):
        if batch_id is None:
            view = _run_next(app, ctx, meter, app.pipeline(names[0]), until_caught_up=run_all)
        else:
            show = _shown(app, meter)
            view = _noted(app, use_case.run(ctx, [batch_id], replan=replan_batch, on_batch=show))
    if app.out.as_json:
        app.out.view(view)
    elif not view.batches:
        app.out.line("nothing to run" if view.blocks else "nothing new")
    view.check_unblocked()


@contextmanager
def _counting(app: App) -> Iterator[tuple[Context, Meter]]:
    """Spark, and what shows on a terminal how far the batch is that is being counted."""
    with (
        app.out.progress("counting", "offsets", elsewhere=False) as meter,
        shared_session(app, meter.update) as ctx,
    ):
        yield ctx, meter


def _run_all(app: App, names: Sequence[str], *, until_caught_up: bool) -> int:
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
    view = use_case.run_pipeline(
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
            _show(app, ran)

    return show


def _noted(app: App, view: RunView) -> RunView:
    if view.unmatched:
        topic = app.settings.pipeline(view.batches[0].pipeline).topics[0]
        app.out.note(
            f"none of {plural(view.unmatched, 'well-formed line')} matched; if that is a "
            f"surprise, tally format try {topic} shows the levels of such lines"
        )
    return view


def _show(app: App, ran: RanView) -> None:
    if ran.committed_before:
        app.out.line(f"batch {ran.batch_id} of {ran.pipeline} {ran.before}")
        return
    app.out.line(
        f"batch {ran.batch_id} of {ran.pipeline} is committed: {plural(ran.records, 'record')}, "
        f"{number(ran.matched)} matched, {number(ran.malformed)} malformed"
        f"{continued(ran.continuations)}, {ran.seconds:.1f} s"
    )
    app.out.table(
        ["PARTITION", "RANGE", "RECORDS", "MATCHED", "MALFORMED"],
        [
            [
                r.range.place,
                r.range.span,
                *map(number, (t.records, t.matched, t.malformed) if t else (None,) * 3),
            ]
            for r in ran.ranges
            for t in [r.totals]
        ],
        numbers=["RECORDS", "MATCHED", "MALFORMED"],
    )
