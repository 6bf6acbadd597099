"""The pages about how a pipeline is, and what the ledger holds of it."""

from operator import attrgetter
from typing import Final
from urllib.parse import urlencode

from tally.airflow.console import charts
from tally.airflow.console.drawing import minute_text
from tally.airflow.console.listings import (
    batch_tables,
    batches_table,
    letters_table,
    partitions_table,
    reasons_table,
)
from tally.airflow.console.page import ROWS, SPANS, Asked, Page
from tally.airflow.console.tables import Table
from tally.airflow.policies import REPLAY_SUFFIX
from tally.ledger.dead_letters import Among
from tally.lines.format import MalformedReason
from tally.model import BatchKind, BatchState
from tally.reading.batches import batch, batches
from tally.reading.columns import PLACE, Column
from tally.reading.dead_letters import dead_letters, reasons
from tally.reading.minutes import MINUTE, minute, minutes
from tally.status.status import PartitionStatus, StatusView, status
from tally.status.waiting import waiting

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


def ledger_status(asked: Asked) -> StatusView:
    """The status as the ledger has it: a page does not wait for Kafka."""
    return status(asked.ctx, asked.pipeline, ask_kafka=False, surroundings=asked.surroundings())


def overview_page(asked: Asked) -> Page:
    """Health, the chart and the latest batches; Kafka is asked by :func:`kafka_page`."""
    pipeline, query = asked.pipeline, asked.query
    view = ledger_status(asked)
    shown = minutes(asked.ctx, pipeline, **query.span())
    latest = batches(asked.ctx, pipeline, limit=10).batches
    outdated = shown.outdated
    replay = {"what": "minutes", "reason": "minutes were counted under other rules"}
    if outdated:
        replay |= {
            "first_minute": minute_text(outdated[0]),
            "last_minute": minute_text(outdated[-1]),
        }
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
            "replay_outdated": urlencode(replay) if outdated else "",
        },
        tables=(
            batches_table(latest, "batches", "Latest batches"),
            Table.of(BARS, shown.bars, name="minutes", title="Lines by time"),
        ),
    )


def minute_page(asked: Asked) -> Page:
    """The segments behind a minute."""
    view = minute(asked.ctx, asked.pipeline, asked.query.moment("at", needed=True))
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


def kafka_page(asked: Asked) -> Page:
    """What Kafka says now: lag, how old what waits is, and what is not read."""
    view = waiting(asked.ctx, asked.pipeline, surroundings=asked.surroundings())
    return Page(
        template="kafka.html",
        title=asked.pipeline,
        values={"waiting": view, "status": view.status, "now": asked.ctx.clock.now()},
    )


def partitions_page(asked: Asked) -> Page:
    """A strip for each partition, as the ledger has it; :func:`strips_page` has Kafka's ends."""
    view = ledger_status(asked)
    return Page(
        template="partitions.html",
        title="Partitions",
        values={"status": view, "strips": _strips(view), "waiting": None},
        tables=(partitions_table(view, None),),
    )


def strips_page(asked: Asked) -> Page:
    """The strips with Kafka's ends."""
    view = waiting(asked.ctx, asked.pipeline, surroundings=asked.surroundings())
    return Page(
        template="strips.html",
        title="Partitions",
        values={
            "status": view.status,
            "strips": _strips(view.status),
            "waiting": view,
            "now": asked.ctx.clock.now(),
        },
        tables=(partitions_table(view.status, view),),
    )


def _strips(view: StatusView) -> list[tuple[PartitionStatus, tuple[charts.Stretch, ...]]]:
    return [(p, charts.stretches(p)) for p in view.partitions[:STRIPS_MAX]]


def batches_page(asked: Asked) -> Page:
    """The ledger's batches, with filters."""
    query = asked.query
    limit = query.limit()
    found = batches(
        asked.ctx,
        asked.pipeline,
        state=query.one_of("state", BatchState),
        kind=query.one_of("kind", BatchKind),
        before=query.number("before"),
        limit=limit,
    ).batches
    more = found[-1].batch_id if len(found) == limit else None
    return Page(
        template="batches.html",
        title="Batches",
        values={
            "query": query,
            "states": list(BatchState),
            "kinds": list(BatchKind),
            "older": urlencode({**query, "before": more}) if more else "",
        },
        tables=(batches_table(found, "batches", "Batches, newest first"),),
    )


def batch_page(asked: Asked) -> Page:
    """One batch with its ranges.

    Raises:
        UnknownBatchError: The pipeline has no batch with this id.
    """
    pipeline, batch_id = asked.pipeline, asked.path.number("batch_id") or 0
    # To one of another pipeline the user may have no right: it is as unknown as one that is not.
    view = batch(asked.ctx, batch_id, rows=ROWS, pipeline=pipeline)
    dag_id = pipeline + REPLAY_SUFFIX if view.kind == BatchKind.REPLAY else pipeline
    return Page(
        template="batch.html",
        title=f"Batch {batch_id}",
        values={"batch": view, "dag_id": dag_id},
        tables=batch_tables(view),
    )


def dead_letters_page(asked: Asked) -> Page:
    """Dead letters of what is in the result, and how many there are of each reason."""
    query = asked.query
    among = Among(
        batch_id=query.number("batch"),
        partition=query.partition(),
        since=query.moment("since", zone=True),
        before=query.moment("until", zone=True),
    )
    skip, limit = query.number("skip") or 0, query.limit()
    found = dead_letters(
        asked.ctx,
        asked.pipeline,
        among,
        reason=query.one_of("reason", MalformedReason),
        text=query.get("text"),
        skip=skip,
        limit=limit,
    ).dead_letters
    totals = reasons(asked.ctx, asked.pipeline, among)
    more = skip + limit if len(found) == limit else None
    return Page(
        template="dead_letters.html",
        title="Dead letters",
        values={
            "query": query,
            "letters": found,
            "reasons": list(MalformedReason),
            "totals": totals,
            "more": urlencode({**query, "skip": more}) if more else "",
            "batches": sorted({letter.batch_id for letter in found}),
        },
        tables=(
            reasons_table(totals.totals, urlencode(query.without("reason"))),
            letters_table(found),
        ),
    )
