"""``status``, ``batches``, ``show``: reading the ledger."""

from dataclasses import dataclass
from typing import Any

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import (
    batch_argument,
    json_option,
    limit_option,
    pass_app,
    pipeline_argument,
)
from tally.cli.shapes import Shape, batch_shape, block_shape, range_shape, segment_shape
from tally.cli.standing import Standing, stand, table_rows
from tally.cli.values import ABSENT, moment, number, plural, span
from tally.errors import KafkaUnavailableError, TallyError
from tally.kafka import Kafka
from tally.ledger import batches as ledger_batches
from tally.ledger.positions import known_topics
from tally.ledger.reading import (
    BatchRecord,
    SegmentRecord,
    batch_record,
    count_minutes,
    last_committed,
    list_batches,
    segments_of,
    top_minutes,
)
from tally.model import BatchState, KafkaSnapshot
from tally.mysql import Transaction, transaction
from tally.planning import Block, KnownTopic
from tally.settings import Pipeline


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
    with transaction(app.settings.mysql, isolation="repeatable read", read_only=True) as tx:
        ledger = _read_ledger(tx, settings.name)
    kafka, trouble = _ask_kafka(app, settings)
    standings, blocks = stand(settings, ledger.known, kafka)
    if app.out.as_json:
        app.out.document(_status_shape(settings, ledger, kafka, standings, blocks))
    else:
        _show_status(app, settings, ledger, standings, blocks)
    if trouble is not None:
        raise trouble


@click.command(
    cls=Command,
    examples=["tally batches --limit 5", "tally batches error_log --state abandoned --json"],
)
@pipeline_argument
@limit_option(20, "Batches")
@click.option(
    "--state",
    type=click.Choice([str(state) for state in BatchState]),
    help="Only batches in this state.",
)
@json_option
@pass_app
def batches(app: App, pipeline: str | None, limit: int, state: str | None) -> None:
    """List batches, newest first."""
    name = app.pipeline(pipeline)
    wanted = BatchState(state) if state else None
    with transaction(app.settings.mysql, read_only=True) as tx:
        found = list_batches(tx, name, state=wanted, limit=limit)
    if app.out.as_json:
        app.out.document({"pipeline": name, "batches": [batch_shape(batch) for batch in found]})
        return
    numbers = ["BATCH", "ATTEMPT", "OFFSETS", "RECORDS", "MATCHED", "MALFORMED"]
    app.out.table(
        ["BATCH", "KIND", "STATE", "ATTEMPT", "PLANNED", "COMMITTED", *numbers[2:]],
        [
            [
                str(batch.batch_id),
                str(batch.kind),
                str(batch.state),
                str(batch.attempt),
                moment(batch.planned_at),
                moment(batch.committed_at),
                number(batch.offsets),
                number(batch.records),
                number(batch.matched),
                number(batch.malformed),
            ]
            for batch in found
        ],
        numbers=numbers,
    )


@click.command(cls=Command, examples=["tally show 42", "tally show 42 --minutes 100 --json"])
@batch_argument
@click.option(
    "--minutes",
    type=click.IntRange(min=0, max=1_000_000),
    default=10,
    show_default=True,
    help="Minutes at most, those with most lines first.",
)
@json_option
@pass_app
def show(app: App, batch_id: int, minutes: int) -> None:
    """Show one batch with its ranges and counts.

    Who planned, claimed, committed or abandoned it and when, with which version and line format;
    what each range held; and the minutes that it added most to.
    """
    with transaction(app.settings.mysql, isolation="repeatable read", read_only=True) as tx:
        batch = batch_record(tx, batch_id)
        segments = segments_of(tx, batch_id)
        touched = count_minutes(tx, batch_id)
        top = top_minutes(tx, batch_id, minutes)
    if app.out.as_json:
        app.out.document(
            {
                **batch_shape(batch),
                "ranges": [segment_shape(segment) for segment in segments],
                "minutes_touched": touched,
                "minutes": [{"log_time": at, "log_count": count} for at, count in top],
            }
        )
        return
    _show_batch(app, batch)
    _show_segments(app, segments)
    if touched:
        app.out.line()
        app.out.table(
            ["LOG TIME", "LINES"], [[at, number(count)] for at, count in top], numbers=["LINES"]
        )
        app.out.line(f"{len(top):,} of {plural(touched, 'minute')} shown")


def _read_ledger(tx: Transaction, pipeline: str) -> _Ledger:
    batch = ledger_batches.find_open_ingest(tx, pipeline)
    return _Ledger(
        known=known_topics(tx, pipeline),
        open_batch=batch_record(tx, batch.batch_id) if batch else None,
        last=last_committed(tx, pipeline),
    )


def _ask_kafka(app: App, pipeline: Pipeline) -> tuple[KafkaSnapshot | None, TallyError | None]:
    try:
        read_committed = pipeline.isolation_level == "read_committed"
        kafka = Kafka(app.settings.kafka)
        return kafka.snapshot(pipeline.topics, read_committed=read_committed), None
    except KafkaUnavailableError as error:
        return None, error


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


def _show_batch(app: App, batch: BatchRecord) -> None:
    facts: list[tuple[str, Any]] = [
        ("batch", f"{batch.batch_id}, {batch.kind} of {batch.pipeline}"),
        ("state", f"{batch.state}, attempt {batch.attempt}"),
        ("planned", f"{moment(batch.planned_at)} by {batch.requested_by}"),
        ("planned with", f"tally {batch.planned_version}"),
        ("run id", batch.run_id),
        ("claimed", batch.claimed_at and f"{moment(batch.claimed_at)} by {batch.claimed_by}"),
        ("committed", batch.committed_at and moment(batch.committed_at)),
        (
            "counted with",
            batch.committed_version
            and f"tally {batch.committed_version}, format {batch.format_fingerprint}",
        ),
        (
            "abandoned",
            batch.abandoned_at and f"{moment(batch.abandoned_at)} by {batch.abandoned_by}",
        ),
        ("reason", batch.reason),
        ("offsets", number(batch.offsets)),
        ("records", batch.records is not None and _sums(batch)),
    ]
    for name, value in facts:
        if value:
            app.out.line(f"{name:14}{value}")


def _sums(batch: BatchRecord) -> str:
    return (
        f"{number(batch.records)}: {number(batch.matched)} matched, "
        f"{number(batch.unmatched)} at other levels, {number(batch.malformed)} malformed"
    )


def _show_segments(app: App, segments: list[SegmentRecord]) -> None:
    app.out.line()
    numbers = ["SEGMENT", "RECORDS", "MATCHED", "MALFORMED"]
    app.out.table(
        ["SEGMENT", "PARTITION", "RANGE", "STATE", *numbers[1:], "SUPERSEDED BY"],
        [
            [
                str(segment.segment_id),
                str(segment.range.partition),
                span(segment.range.from_offset, segment.range.until_offset),
                str(segment.state),
                number(segment.totals.records if segment.totals else None),
                number(segment.totals.matched if segment.totals else None),
                number(segment.totals.malformed if segment.totals else None),
                str(segment.superseded_by or ABSENT),
            ]
            for segment in segments
        ],
        numbers=numbers,
    )
