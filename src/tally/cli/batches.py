"""``plan``, ``run``, ``batches``, ``show``, ``replays``: batches, from their plan to their end."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.output import moment, number, sums
from tally.cli.results import show_rows
from tally.cli.session import shared_session
from tally.context import Context
from tally.counting import plan as planning
from tally.counting import run as running
from tally.counting.outcomes import Ran
from tally.counting.run import RunsView, RunView
from tally.each import Each, for_each
from tally.errors import EXIT_OK, UsageError
from tally.formatting import continued, plural
from tally.model import BatchState
from tally.planning.blocks import blocked_error, check_unblocked
from tally.reading import batches as use_case
from tally.reading import columns
from tally.replay import run as replaying

REPLACES: Final[Mapping[BatchState, str]] = {
    BatchState.PLANNED: "is to replace",
    BatchState.COMMITTED: "has replaced",
    BatchState.ABANDONED: "was to replace",
}


@command(document=planning.Planned)
@options.pipeline
@options.dry_run
def plan(app: App, pipeline: str | None, dry_run: bool) -> None:
    """Fix which offsets the next batch reads.

    Asks Kafka for new records and stores their ranges in the ledger; they never change after that.
    A batch that was planned before and is not committed yet is resumed unchanged. With delivery =
    "partition" each partition has a batch of its own. Partitions on which Kafka and the ledger
    disagree are left out and named, with exit code 4; the others are planned.

    Examples:
        tally plan
        tally plan error_log --dry-run
        tally plan error_log --json | jq .batches[].batch_id
    """
    view = planning.plan(app.context, app.pipeline(pipeline), dry_run=dry_run)
    app.out.document(view)
    for cause in view.abandoned:
        verb = "would be" if view.dry_run else "is"
        app.out.line(f"the open batch {verb} abandoned: {cause}")
    app.out.line(view.title)
    if view.batches:
        app.out.records(columns.RANGE, view.ranges)
    check_unblocked(view.pipeline, view.blocks)


@command(document=RunView, several=RunsView)
@click.argument(
    "batch_id",
    metavar="[BATCH]",
    type=options.Number("the number of a batch; name a pipeline with --pipeline"),
    required=False,
    shell_complete=options.complete_batches,
)
@options.pipeline_option(help="Run the next batch of this pipeline alone, without BATCH.")
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

    Examples:
        tally run
        tally run 42
        tally run --pipeline error_log --all
    """
    if batch_id is not None and (pipeline or run_all):
        raise UsageError(
            "BATCH takes neither --pipeline nor --all: leave them out",
            next_step=f"tally run {batch_id}",
        )
    names = app.chosen(pipeline) if batch_id is None else []
    with _counting(app) as (ctx, show):
        run_next = partial(_run_next, app, ctx, show, run_all)
        if batch_id is not None:
            done = []
            for ran in running.run_batches(ctx, [batch_id]):
                show(ran)
                done.append(ran)
            view = RunView(pipeline=None, batches=tuple(done), blocks=())
            _mention_unmatched(app, view)
        elif len(names) == 1:
            view = run_next(names[0])
        else:
            each = for_each(names, run_next)
    if len(names) > 1:
        return _finish_all(app, each)
    app.out.document(view)
    if not view.batches:
        app.out.line("nothing to run" if view.blocks else "nothing new")
    check_unblocked(view.pipeline, view.blocks)
    return EXIT_OK


@contextmanager
def _counting(app: App) -> Iterator[tuple[Context, Callable[[Ran], None]]]:
    """Spark, and what shows each batch; a terminal shows how far the one is that is counted."""
    with (
        app.out.progress("counting", "offsets", elsewhere=False) as meter,
        shared_session(app, meter.update) as ctx,
    ):

        def show(ran: Ran) -> None:
            meter.clear()
            what = f"batch {ran.batch_id} of {ran.pipeline}"
            if ran.committed_before:
                app.out.line(f"{what} {ran.before}")
            else:
                app.out.line(f"{what} is committed: {sums(ran.total)}, {ran.seconds:.1f} s")
                app.out.records(columns.COUNTED_RANGE, ran.ranges)

        yield ctx, show


def _run_next(
    app: App, ctx: Context, show: Callable[[Ran], None], until_caught_up: bool, name: str
) -> RunView:
    view = running.run_pipeline(
        ctx,
        name,
        until_caught_up=until_caught_up,
        on_batch=show,
        on_abandoned=lambda why: app.out.note(f"the open batch is abandoned: {why}"),
    )
    _mention_unmatched(app, view)
    return view


def _mention_unmatched(app: App, view: RunView) -> None:
    if view.unmatched:
        topic = app.settings.pipeline(view.batches[0].pipeline).topics[0]
        app.out.note(
            f"none of {plural(view.unmatched, 'well-formed line')} matched; if that is a "
            f"surprise, tally format try {topic} shows the levels of such lines"
        )


def _finish_all(app: App, each: Each[RunView]) -> int:
    """Show what became of several pipelines; returns the exit code."""
    for view in each.done:
        if view.pipeline is not None and view.blocks:
            each.errors[view.pipeline] = blocked_error(view.pipeline, view.blocks)
        elif not view.batches:
            app.out.line(f"{view.pipeline}: nothing new")
    app.out.document(RunsView(runs=tuple(each.done), errors=each.views))
    return app.finish(each)


@command(document=use_case.BatchesView)
@options.pipeline
@options.limit(default=20, help="Batches at most.")
@click.option(
    "--state",
    type=click.Choice([str(state) for state in BatchState]),
    help="Only batches in this state.",
)
@options.wide
def batches(app: App, pipeline: str | None, limit: int, state: str | None) -> None:
    """List batches, newest first.

    A batch that a replay has replaced since is marked so; its counts are those of its commit.

    Examples:
        tally batches --limit 5
        tally batches error_log --state abandoned --json
    """
    in_state = BatchState(state) if state else None
    view = use_case.batches(app.context, app.pipeline(pipeline), state=in_state, limit=limit)
    app.out.document(view)
    app.out.records(columns.BATCH, view.batches)


@command(document=replaying.ReplaysView)
@options.pipeline
@options.limit(default=20, help="Replays at most.")
@options.wide
def replays(app: App, pipeline: str | None, limit: int) -> None:
    """List replays, newest first.

    Shows who requested what, when and why, and how many of its batches and offsets are committed;
    abandoned batches are left out. An open replay waits for tally replay --resume.

    Examples:
        tally replays
        tally replays error_log --limit 5 --json
    """
    view = replaying.list_replays(app.context, app.pipeline(pipeline), limit=limit)
    app.out.document(view)
    app.out.records(columns.REPLAY, view.replays)


@command(document=use_case.BatchView)
@options.batch
@click.option(
    "--rows",
    "--minutes",
    "rows",
    type=options.Number("a number of rows", min=0, max=1_000_000),
    default=10,
    help="The largest number of rows (minutes and labels), those with most lines first.",
)
@options.wide
def show(app: App, batch_id: int, rows: int) -> None:
    """Show one batch with its ranges and counts.

    Shows who planned, claimed, committed or abandoned it and when, with which version and rules;
    what each range held; the minutes to which it added most lines; and what superseded it. For a
    batch of a replay also the request.

    Examples:
        tally show 42
        tally show 42 --rows 100 --json
    """
    view, out = use_case.batch(app.context, batch_id, rows=rows), app.out
    out.document(view)
    for name, value in _facts(view).items():
        if value:
            out.line(f"{name:14}{value}")
    out.line()
    out.records(columns.SEGMENT, view.ranges)
    if view.minutes_touched:
        out.line()
        show_rows(out, view.columns, view.minutes)
        what = "row" if view.columns.labels else "minute"
        out.line(f"{len(view.minutes):,} of {plural(view.rows_touched, what)} shown")


def _facts(batch: use_case.BatchView) -> dict[str, Any]:
    """What is known of a batch, by name; what does not apply is empty."""
    replay = batch.replay
    return {
        "batch": f"{batch.batch_id}, {batch.kind} of {batch.pipeline}",
        "replay": replay and f"{replay.replay_id}, {replay.request}: {replay.reason}",
        REPLACES[batch.state]: batch.replaced,
        "state": f"{batch.standing}, attempt {batch.attempt}",
        "scheduled": _when(batch.scheduled_at),
        "planned": f"{moment(batch.planned_at)} by {batch.requested_by}",
        "planned with": f"tally {batch.planned_version}",
        "run id": batch.run_id,
        "claimed": _when(batch.claimed_at, f" by {batch.claimed_by}"),
        "read": _when(batch.read_at),
        "committed": _when(batch.committed_at),
        "took": batch.committed_at and _steps(batch),
        "counted with": batch.committed_version
        and f"tally {batch.committed_version}, rules {batch.format_fingerprint}",
        "abandoned": _when(batch.abandoned_at, f" by {batch.abandoned_by}"),
        "reason": batch.reason,
        "pruned": _when(batch.pruned_at, ": the sums and ranges below lack that"),
        "offsets": number(batch.offsets),
        "records": batch.records is not None
        and f"{number(batch.records)}: {number(batch.matched)} matched, "
        f"{number(batch.unmatched)} unmatched, {number(batch.malformed)} malformed"
        f"{continued(batch.continuations)}",
    }


def _when(at: datetime | None, more: str = "") -> str:
    return f"{moment(at)}{more}" if at else ""


def _steps(batch: use_case.BatchView) -> str:
    """``2.1 s until planned, 0.4 s until claimed, 1.8 s until read, 0.1 s until committed``."""
    return ", ".join(f"{seconds:.1f} s until {name}" for name, seconds in batch.steps.items())
