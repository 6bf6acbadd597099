"""``status``: the status of each partition, in the ledger and in Kafka."""

import click

from tally.app import status as use_case
from tally.app.health import Health, ProblemReason
from tally.app.status import PartitionStatus, StatusRequest, StatusView
from tally.app.surroundings import look_around
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.extensions import Unanswered, airflow_environment
from tally.cli.options import check_option, json_option, pipeline_argument, wide_option
from tally.cli.pipelines import show_all, show_problems
from tally.cli.ui.values import HEALTH_LABELS, moment, number
from tally.errors import EXIT_FINDINGS
from tally.formatting import ABSENT, continued, plural


@click.command(
    cls=Command,
    examples=[
        "tally status",
        "tally status error_log --check",
        "tally status error_log --json | jq '[.partitions[].lag_offsets] | add'",
    ],
)
@pipeline_argument
@wide_option
@check_option
@json_option
@click.pass_context
def status(context: click.Context, pipeline: str | None, check: bool) -> None:
    """Show the health of a pipeline and the status of each partition.

    Shows the committed offset, Kafka's end and the lag in offsets; the open batch and the last
    committed one; and what is wrong, with what to do about it. When Kafka does not answer, only the
    ledger's side is shown, with exit code 3. Without PIPELINE, and with several pipelines or one
    that is configured wrong, lists all pipelines.

    With --check, Airflow is also asked whether the DAG is paused, where one is configured.
    """
    app = context.ensure_object(App)
    if pipeline is None and (len(app.settings.names) > 1 or app.settings.disabled):
        show_all(context, check=check)
        return
    unanswered = Unanswered(app)
    name = app.pipeline(pipeline)
    around = look_around(app.settings, airflow_environment(app) if check else None)
    request = StatusRequest(pipeline=name, surroundings=around[name])
    view = use_case.status(app.context, request, on_unanswered=unanswered)
    if app.out.as_json:
        app.out.view(view)
    else:
        _show(app, view)
    unanswered.check()
    context.exit(EXIT_FINDINGS if check and view.health is not Health.OK else 0)


def _show(app: App, view: StatusView) -> None:
    if view.partitions:
        app.out.table(
            ["PARTITION", "START", "NEXT", "END", "LAG", "STATE", "TOPIC ID"],
            [_row(partition) for partition in view.partitions],
            numbers=["START", "NEXT", "END", "LAG"],
            texts=["STATE"],
            extra=["START", "TOPIC ID"],
        )
        app.out.line()
    app.out.line(f"pipeline {view.pipeline}, table {view.result_table}")
    for batch in view.open_batches:
        app.out.line(
            f"open batch: {batch.batch_id}, planned {moment(batch.planned_at)}, attempt "
            f"{batch.attempt}, {plural(batch.offsets, 'offset')}"
        )
    if not view.open_batches:
        app.out.line("open batch: none")
    if (last := view.last_committed_batch) is not None:
        app.out.sentence(
            f"last committed minute batch: {last.batch_id} at {moment(last.committed_at)}, "
            f"{plural(last.records or 0, 'record')}, {number(last.matched)} matched, "
            f"{number(last.malformed)} malformed{continued(last.continuations)}"
        )
    else:
        app.out.line("last committed minute batch: none")
    app.out.line(f"health: {HEALTH_LABELS[view.health]}")
    # Why Kafka has not answered is the command's own error, told at its end.
    show_problems(
        app.out, [p for p in view.problems if p.reason is not ProblemReason.KAFKA_UNANSWERED]
    )


def _row(partition: PartitionStatus) -> list[str]:
    return [
        partition.place,
        _offset(partition.start_offset),
        _offset(partition.next_offset),
        _offset(partition.kafka_end),
        number(partition.lag_offsets),
        partition.condition,
        partition.topic_id or ABSENT,
    ]


def _offset(value: int | None) -> str:
    return ABSENT if value is None else str(value)
