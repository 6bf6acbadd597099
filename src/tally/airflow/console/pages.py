"""The pages about how a pipeline is: health, chart, partitions."""

from operator import attrgetter
from typing import Final
from urllib.parse import urlencode

from tally.airflow.console import charts
from tally.airflow.console.drawing import minute_text
from tally.airflow.console.listings import batches_table, partitions_table
from tally.airflow.console.page import Page
from tally.airflow.console.query import SPANS, Query, chart_span, moment_of
from tally.airflow.console.tables import Table
from tally.app.batches import batches
from tally.app.columns import PLACE, Column
from tally.app.minutes import MINUTE, minute, minutes
from tally.app.status import PartitionStatus, StatusView, status
from tally.app.surroundings import Surroundings
from tally.app.waiting import waiting
from tally.context import Context
from tally.model import BatchKind

STRIPS_MAX: Final = 1_000
"""Partitions of which a page shows strips; the table has all."""

BARS: Final = (
    Column("minute", "from", of=attrgetter("first_minute")),
    Column("lines", "lines"),
    Column("replayed", "replayed"),
    Column("outdated", "under other rules"),
)
PARTS: Final = (
    Column("lines", "lines"),
    PLACE,
    Column("offsets", "offsets", of=lambda part: part.range.span),
    Column("batch_id", "batch"),
    Column(
        "counted_by",
        "counted by",
        of=lambda part: "a replay" if part.kind is BatchKind.REPLAY else "a minute batch",
    ),
)


def ledger_status(ctx: Context, pipeline: str, surroundings: Surroundings) -> StatusView:
    """The status as the ledger has it: a page does not wait for Kafka."""
    return status(ctx, pipeline, ask_kafka=False, surroundings=surroundings)


def overview_page(ctx: Context, pipeline: str, query: Query, surroundings: Surroundings) -> Page:
    """Health, the chart and the latest batches; Kafka is asked by :func:`kafka_page`."""
    view = ledger_status(ctx, pipeline, surroundings)
    shown = minutes(ctx, pipeline, **chart_span(query))
    latest = batches(ctx, pipeline, limit=10).batches
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
            Table.of(BARS, shown.bars, name="minutes", title="Lines by time"),
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
            Table.of(
                PARTS,
                view.parts,
                name="segments",
                title="Segments with lines of this minute",
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
