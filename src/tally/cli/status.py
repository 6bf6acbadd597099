"""``status``: the status of each partition, in the ledger and in Kafka."""

import click

from tally.app import status as use_case
from tally.app.status import PartitionStatus, StatusRequest, StatusView
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, pass_app, pipeline_argument
from tally.cli.ui.values import moment, number
from tally.errors import KafkaUnavailableError
from tally.formatting import ABSENT, plural


@click.command(
    cls=Command,
    examples=[
        "tally status",
        "tally status error_log --json | jq '[.partitions[].lag_offsets] | add'",
    ],
)
@pipeline_argument
@json_option
@pass_app
def status(app: App, pipeline: str | None) -> None:
    """Show the status of each partition.

    Shows the start and the committed offset, Kafka's end, the lag in offsets, and what is blocked
    or lost; then the open batch and the last committed one. When Kafka does not answer, only the
    ledger's side is shown, with exit code 3.
    """
    unanswered: list[KafkaUnavailableError] = []
    request = StatusRequest(pipeline=app.pipeline(pipeline))
    view = use_case.status(app.context, request, on_unanswered=unanswered.append)
    if app.out.as_json:
        app.out.view(view)
    else:
        _show(app, view)
    if unanswered:
        raise unanswered[0]


def _show(app: App, view: StatusView) -> None:
    if view.partitions:
        app.out.table(
            ["PARTITION", "START", "NEXT", "END", "LAG", "TOPIC ID", "STATE"],
            [_row(partition) for partition in view.partitions],
            numbers=["START", "NEXT", "END", "LAG"],
        )
        app.out.line()
    app.out.line(f"pipeline {view.pipeline}, table {view.result_table}")
    if (batch := view.open_batch) is not None:
        app.out.line(
            f"open batch: {batch.batch_id}, planned {moment(batch.planned_at)}, attempt "
            f"{batch.attempt}, {plural(batch.offsets, 'offset')}"
        )
    else:
        app.out.line("open batch: none")
    if (last := view.last_committed_batch) is not None:
        app.out.line(
            f"last committed: {last.batch_id} at {moment(last.committed_at)}, "
            f"{plural(last.records or 0, 'record')}, {number(last.matched)} matched"
        )
    else:
        app.out.line("last committed: none")
    for block in view.blocks:
        where = block.topic if block.partition is None else f"{block.topic}/{block.partition}"
        app.out.line(f"blocked: {where}: {block.detail}")
        app.out.line(f"    next: {block.next_step}")


def _row(partition: PartitionStatus) -> list[str]:
    return [
        partition.place,
        _offset(partition.start_offset),
        _offset(partition.next_offset),
        _offset(partition.kafka_end),
        number(partition.lag_offsets),
        partition.topic_id or ABSENT,
        partition.condition,
    ]


def _offset(value: int | None) -> str:
    return ABSENT if value is None else str(value)
