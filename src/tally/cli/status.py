"""``status``: where each partition stands, in the ledger and in Kafka."""

from dataclasses import dataclass

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option, pass_app, pipeline_argument
from tally.cli.shapes import Shape, batch_shape, block_shape, range_shape
from tally.cli.standing import Standing, stand, table_rows
from tally.cli.ui.values import moment, number
from tally.config.pipeline import Pipeline
from tally.errors import KafkaUnavailableError, TallyError
from tally.formatting import plural
from tally.ledger import batches as ledger_batches
from tally.ledger.positions import known_topics
from tally.ledger.reading import BatchRecord, batch_record, last_committed
from tally.model import KafkaSnapshot, KnownTopic
from tally.mysql.transactions import Transaction
from tally.planning.blocks import Block


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ledger:
    known: dict[str, KnownTopic]
    open_batch: BatchRecord | None
    last: BatchRecord | None


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
    """Show where each partition stands.

    Start and next offset of the ledger, Kafka's end, the lag in offsets, and what is blocked or
    lost; then the open batch and the last committed one. When Kafka does not answer, the ledger's
    side is shown all the same, with exit code 3.
    """
    settings = app.settings.pipeline(app.pipeline(pipeline))
    with app.context.database.transaction(isolation="repeatable read", read_only=True) as tx:
        ledger = _read_ledger(tx, settings.name)
    kafka, trouble = _ask_kafka(app, settings)
    standings, blocks = stand(settings, ledger.known, kafka)
    if app.out.as_json:
        app.out.document(_status_shape(settings, ledger, kafka, standings, blocks))
    else:
        _show_status(app, settings, ledger, standings, blocks)
    if trouble is not None:
        raise trouble


def _read_ledger(tx: Transaction, pipeline: str) -> _Ledger:
    batch = ledger_batches.find_open_ingest(tx, pipeline)
    return _Ledger(
        known=known_topics(tx, pipeline),
        open_batch=batch_record(tx, batch.batch_id) if batch else None,
        last=last_committed(tx, pipeline),
    )


def _ask_kafka(app: App, pipeline: Pipeline) -> tuple[KafkaSnapshot | None, TallyError | None]:
    try:
        said = app.context.kafka.snapshot(pipeline.topics, read_committed=pipeline.reads_committed)
    except KafkaUnavailableError as error:
        return None, error
    return said, None


def _show_status(
    app: App,
    pipeline: Pipeline,
    ledger: _Ledger,
    standings: list[Standing],
    blocks: tuple[Block, ...],
) -> None:
    if standings:
        app.out.table(
            ["PARTITION", "START", "NEXT", "END", "LAG", "TOPIC ID", "STATE"],
            table_rows(standings),
            numbers=["START", "NEXT", "END", "LAG"],
        )
        app.out.line()
    app.out.line(f"pipeline {pipeline.name}, table {pipeline.table}")
    if (batch := ledger.open_batch) is not None:
        app.out.line(
            f"open batch: {batch.batch_id}, planned {moment(batch.planned_at)}, attempt "
            f"{batch.attempt}, {plural(batch.offsets, 'offset')}"
        )
    else:
        app.out.line("open batch: none")
    if (last := ledger.last) is not None:
        app.out.line(
            f"last committed: {last.batch_id} at {moment(last.committed_at)}, "
            f"{plural(last.records or 0, 'record')}, {number(last.matched)} matched"
        )
    else:
        app.out.line("last committed: none")
    for block in blocks:
        where = block.topic if block.partition is None else f"{block.topic}/{block.partition}"
        app.out.line(f"blocked: {where}: {block.detail}")
        app.out.line(f"    next: {block.next_step}")


def _status_shape(
    pipeline: Pipeline,
    ledger: _Ledger,
    kafka: KafkaSnapshot | None,
    standings: list[Standing],
    blocks: tuple[Block, ...],
) -> Shape:
    return {
        "pipeline": pipeline.name,
        "result_table": pipeline.table,
        "kafka_answered": kafka is not None,
        "cluster_id": kafka.cluster_id if kafka else None,
        "partitions": [_standing_shape(standing) for standing in standings],
        "blocks": [block_shape(block) for block in blocks],
        "open_batch": batch_shape(ledger.open_batch) if ledger.open_batch else None,
        "last_committed_batch": batch_shape(ledger.last) if ledger.last else None,
    }


def _standing_shape(standing: Standing) -> Shape:
    return {
        "topic": standing.partition.topic,
        "partition": standing.partition.partition,
        "topic_id": standing.topic_id,
        "start_offset": standing.start_offset,
        "next_offset": standing.next_offset,
        "kafka_earliest": standing.kafka_earliest,
        "kafka_end": standing.kafka_end,
        "lag_offsets": standing.lag_offsets,
        "open_loss": range_shape(standing.open_loss) if standing.open_loss else None,
        "blocked": str(standing.block.reason) if standing.block else None,
    }
