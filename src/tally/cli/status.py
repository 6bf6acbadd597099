"""``status``, ``pipelines`` and ``doctor``: how everything is, and what to do about it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import click

from tally.cli import options
from tally.cli.app import App
from tally.cli.command import command
from tally.cli.output import Output, health_label, moment, sums
from tally.errors import EXIT_FINDINGS, EXIT_OK, UsageError
from tally.formatting import plural
from tally.ledger.growth import ROWS_MIN
from tally.reading import columns
from tally.reading.columns import COUNT, TEXT, Column
from tally.status.doctor import examine
from tally.status.doctor.diagnosis import DoctorView
from tally.status.growth import GrowthView, growth_of
from tally.status.health import Health, Problem, ProblemReason
from tally.status.overview import PipelinesView, overview
from tally.status.status import Statuses, StatusView
from tally.status.surroundings import look_around

SUMMARY: Final = (
    Column("pipeline", "", "PIPELINE"),
    Column("health", "", "HEALTH", of=lambda one: health_label(one.health)),
    Column("lag_offsets", "", "LAG", COUNT),
    Column("last_committed_at", "", "LAST COMMIT", TEXT),
    Column("table", "", "TABLE", of=lambda one: one.result_table or ""),
)

GROWTH: Final = (
    Column("table", "", "TABLE"),
    Column("rows_a_day", "", "ROWS A DAY", COUNT),
    Column("bytes_a_day", "", "BYTES A DAY", COUNT),
    Column("bytes", "", "BYTES NOW", COUNT),
)


@command(document=PipelinesView)
@options.check
@options.wide
def pipelines(app: App, check: bool) -> int:
    """List all pipelines with health, lag and last commit.

    Below them stands what is wrong. A pipeline that is configured wrong is listed as well. When
    Kafka does not answer, only the ledger's side is shown, with exit code 3.

    With --check, Airflow is also asked for paused DAGs, where one is configured.

    Examples:
        tally pipelines
        tally pipelines --json | jq '.pipelines[] | {pipeline, health}'
    """
    return _show_all(app, check=check)


def _show_all(app: App, *, check: bool) -> int:
    statuses = _statuses(app, check=check)
    view = overview(statuses, app.settings.names)
    app.out.document(view)
    app.out.records(SUMMARY, view.pipelines)
    for summary in view.pipelines:
        _show_problems(app.out, summary.problems, of=f"{summary.pipeline}: ")
    return _exit_code(statuses, view.health, check=check)


def _statuses(app: App, *, check: bool) -> Statuses:
    around = look_around(app.settings, app.airflow_environment if check else None)
    return Statuses(ctx=app.context, surroundings=around, explain=app.explain)


def _exit_code(statuses: Statuses, health: Health, *, check: bool) -> int:
    """How the command ends; with Kafka's first error if it has one, as its view was shown."""
    if statuses.errors:
        raise statuses.errors[0]
    return EXIT_FINDINGS if check and health is not Health.OK else EXIT_OK


def _show_problems(out: Output, problems: Sequence[Problem], *, of: str = "") -> None:
    """Show each problem and what to do about it; ``of`` is written before each."""
    for problem in problems:
        text = f"{of}{problem.reason}: {problem.detail}"
        out.labelled(problem.health, text, problem.next_step or "")


@command(document=StatusView, several=PipelinesView)
@options.pipeline
@options.wide
@options.check
@click.option("--growth", is_flag=True, help="Show how MySQL's tables grow with it, too.")
@click.option(
    "--gib",
    type=options.Number("a number of GiB"),
    help="With --growth: in how many days they have so many GiB.",
)
def status(app: App, pipeline: str | None, check: bool, growth: bool, gib: int | None) -> int:
    """Show the health of a pipeline and the status of each partition.

    Shows the committed offset, Kafka's end and the lag in offsets; the open batch and the last
    committed one; and what is wrong, with what to do about it. When Kafka does not answer, only the
    ledger's side is shown, with exit code 3. Without PIPELINE, and with several pipelines or one
    that is configured wrong, lists all pipelines.

    With --check, Airflow is also asked whether the DAG is paused, where one is configured.

    Examples:
        tally status
        tally status error_log --check
        tally status error_log --growth --gib 100
        tally status error_log --json | jq '[.partitions[].lag_offsets] | add'
    """
    if gib is not None and not growth:
        raise UsageError("--gib needs --growth", next_step="add --growth")
    if pipeline is None and (len(app.settings.names) > 1 or app.settings.disabled):
        return _show_all(app, check=check)
    name = app.pipeline(pipeline)
    statuses = _statuses(app, check=check)
    view = statuses.of(name)
    if growth:
        limit = None if gib is None else gib * 2**30
        view = replace(view, growth=growth_of(app.context, name, limit))
    app.out.document(view)
    _show_status(app.out, view)
    if view.growth is not None:
        _show_growth(app.out, view.growth, gib)
    return _exit_code(statuses, view.health, check=check)


def _show_status(out: Output, view: StatusView) -> None:
    if view.partitions:
        out.records(columns.PARTITION, view.partitions)
        out.line()
    out.line(f"pipeline {view.pipeline}, table {view.result_table}")
    if view.counted_through is not None:
        out.line(f"counted through {moment(view.counted_through)}")
    for batch in view.open_batches:
        out.line(
            f"open batch: {batch.batch_id}, planned {moment(batch.planned_at)}, attempt "
            f"{batch.attempt}, {plural(batch.offsets, 'offset')}"
        )
    if not view.open_batches:
        out.line("open batch: none")
    if (last := view.last_committed_batch) is None:
        out.line("last committed minute batch: none")
    else:
        when = moment(last.committed_at)
        out.sentence(f"last committed minute batch: {last.batch_id} at {when}, {sums(last)}")
    out.line(f"health: {health_label(view.health)}")
    # Why Kafka has not answered is the command's own error, which is shown at its end.
    _show_problems(out, [p for p in view.problems if p.reason != ProblemReason.KAFKA_UNANSWERED])


def _show_growth(out: Output, growth: GrowthView, gib: int | None) -> None:
    out.line()
    out.records(GROWTH, growth.tables)
    out.sentence(
        f"{growth.bytes_a_day / 2**20:,.1f} MiB a day by the batches of the last 24 hours, before "
        f"anything is pruned; {growth.bytes / 2**20:,.1f} MiB now"
    )
    if any(table.bytes_a_day is None for table in growth.tables):
        out.line(f"of tables with fewer than {ROWS_MIN:,} rows the bytes are not known yet")
    if growth.days_left is not None:
        out.line(f"{gib:,} GiB in {growth.days_left:,.0f} days")


@command(document=DoctorView)
def doctor(app: App) -> int:
    """Check everything Tally needs and say what to do.

    Checks the configuration and the environment, MySQL (version, storage engine, settings, grants,
    tables), Kafka (topics, access rights), Java and Spark with its Kafka connector, Airflow
    (connections, scheduler, DAGs), and the health of each pipeline. Changes nothing; statements
    that try a grant are rolled back.

    Examples:
        tally doctor
        tally doctor --json | jq '.checks[] | select(.health != "ok")'
    """
    out = app.out
    checks = []
    for diagnosis in examine(app.config_path, app.airflow_environment):
        text = f"{diagnosis.check:24}  {diagnosis.detail}"
        out.labelled(diagnosis.health, text, diagnosis.next_step or "", indent=32)
        checks.append(diagnosis)
    of = Counter(check.health for check in checks)
    view = DoctorView(healthy=not of[Health.FAIL], checks=tuple(checks))
    out.document(view)
    out.line()
    out.line(
        f"{plural(of.total() - of[Health.SKIP], 'check')}: {of[Health.FAIL]} failed, "
        f"{of[Health.WARN]} to look at, {of[Health.SKIP]} skipped"
    )
    return EXIT_OK if view.healthy else EXIT_FINDINGS
