"""The pages about how a pipeline is: health, chart, partitions."""

from typing import Final
from urllib.parse import urlencode

from tally.airflow.console import charts
from tally.airflow.console.drawing import minute_text
from tally.airflow.console.listings import batches_table, partitions_table
from tally.airflow.console.page import Page
from tally.airflow.console.query import SPANS, Query, minutes_request, moment_of
from tally.airflow.console.tables import Column, Table
from tally.app.batches import BatchesRequest, batches
from tally.app.health import Surroundings
from tally.app.minutes import MINUTE, minute, minutes
from tally.app.status import PartitionStatus, StatusRequest, StatusView, status
from tally.app.waiting import waiting
from tally.context import Context

STRIPS_MAX: Final = 1_000
"""Partitions of which a page shows strips; the table has all."""


def ledger_status(ctx: Context, pipeline: str, surroundings: Surroundings) -> StatusView:
    """The status as the ledger has it: a page does not wait for Kafka."""
    return status(ctx, StatusRequest(pipeline=pipeline, ask_kafka=False, surroundings=surroundings))


def overview_page(ctx: Context, pipeline: str, query: Query, surroundings: Surroundings) -> Page:
    """Health, the chart and the latest batches; Kafka is asked by :func:`kafka_page`."""
    view = ledger_status(ctx, pipeline, surroundings)
    shown = minutes(ctx, minutes_request(pipeline, query))
    latest = batches(ctx, BatchesRequest(pipeline=pipeline, limit=10)).batches
    outdated = shown.outdated
    return Page(
        template="overview.html",
        title=pipeline,
        values={
            "status": view,
            "minutes": shown,
            "chart": charts.bar_chart(shown),
            "spans": SPANS,
            "minute": MINUTE,
            "span": query.get("span") or ("" if query.get("first") else "1h"),
            "first": query.get("first", ""),
            "last": query.get("last", ""),
            "outdated": outdated,
            "replay_outdated": urlencode(
                {
                    "what": "minutes",
                    "first_minute": minute_text(outdated[0]),
                    "last_minute": minute_text(outdated[-1]),
                    "reason": "minutes were counted under other rules",
                }
            )
            if outdated
            else "",
        },
        tables=(
            batches_table(latest, "batches", "Latest batches"),
            Table(
                name="minutes",
                title="Lines by time",
                columns=(
                    Column(key="minute", title="from"),
                    Column(key="lines", title="lines"),
                    Column(key="replayed", title="replayed"),
                    Column(key="outdated", title="under other rules"),
                ),
                rows=[
                    {
                        "minute": bar.first_minute,
                        "lines": bar.lines,
                        "replayed": bar.replayed,
                        "outdated": bar.outdated,
                    }
                    for bar in shown.bars
                ],
            ),
        ),
    )


def minute_page(ctx: Context, pipeline: str, query: Query) -> Page:
    """The segments behind a minute."""
    view = minute(ctx, pipeline, moment_of(query, "at", needed=True))
    return Page(
        template="minute.html",
        title=minute_text(view.minute),
        values={"minute": view},
        tables=(
            Table(
                name="segments",
                title="Segments with lines of this minute",
                columns=(
                    Column(key="lines", title="lines"),
                    Column(key="partition", title="partition"),
                    Column(key="offsets", title="offsets"),
                    Column(key="batch_id", title="batch"),
                    Column(key="counted_by", title="counted by"),
                ),
                rows=[
                    {
                        "lines": part.lines,
                        "partition": part.place,
                        "offsets": part.span,
                        "batch_id": part.batch_id,
                        "counted_by": "a replay" if part.replayed else "a minute batch",
                    }
                    for part in view.parts
                ],
                links={"batch_id": "batches/{batch_id}"},
                empty="none: its lines are of segments that were pruned, or it has no line",
            ),
        ),
    )


def kafka_page(ctx: Context, pipeline: str, surroundings: Surroundings) -> Page:
    """What Kafka says now: lag, how old what waits is, and what is not read."""
    view = waiting(ctx, pipeline, surroundings=surroundings)
    return Page(
        template="kafka.html",
        title=pipeline,
        values={"waiting": view, "status": view.status, "now": ctx.clock.now()},
    )


def partitions_page(ctx: Context, pipeline: str, surroundings: Surroundings) -> Page:
    """A strip for each partition, as the ledger has it; :func:`strips_page` has Kafka's ends."""
    view = ledger_status(ctx, pipeline, surroundings)
    return Page(
        template="partitions.html",
        title="Partitions",
        values={"status": view, "strips": _strips(view), "waiting": None},
        tables=(partitions_table(view, None),),
    )


def strips_page(ctx: Context, pipeline: str, surroundings: Surroundings) -> Page:
    """The strips with Kafka's ends."""
    view = waiting(ctx, pipeline, surroundings=surroundings)
    return Page(
        template="strips.html",
        title="Partitions",
        values={
            "status": view.status,
            "strips": _strips(view.status),
            "waiting": view,
            "now": ctx.clock.now(),
        },
        tables=(partitions_table(view.status, view),),
    )


def _strips(view: StatusView) -> list[tuple[PartitionStatus, tuple[charts.Stretch, ...]]]:
    return [(p, charts.stretches(p)) for p in view.partitions[:STRIPS_MAX]]
