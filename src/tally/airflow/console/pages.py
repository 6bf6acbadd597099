"""The pages about how a pipeline is, and what the ledger holds of it."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, Final

from fastapi import Response
from fastapi.responses import JSONResponse, RedirectResponse

from tally.airflow.console.drawing import HEADERS, minute_text
from tally.airflow.console.page import ROWS, ROWS_MAX, TO_BATCH, Asked, Page, Table
from tally.airflow.policies import REPLAY_SUFFIX
from tally.errors import UsageError
from tally.ledger.dead_letters import Among
from tally.ledger.results import ResultRow
from tally.model import BatchKind, BatchState
from tally.packaged import packaged
from tally.reading import columns
from tally.reading.batches import BatchView, batch, batches
from tally.reading.columns import Column
from tally.reading.dead_letters import dead_letters
from tally.reading.minutes import MINUTE, MinutesView, last_hour, minute, minutes
from tally.status.overview import PipelineSummary, overview
from tally.status.state import PartitionStatus
from tally.status.status import StatusView, WaitingView
from tally.views import document

SPANS: Final = {"1h": 60 * MINUTE, "6h": 360 * MINUTE, "24h": 1440 * MINUTE, "7d": 10_080 * MINUTE}

AT_ONCE_MAX: Final = 30
"""Pipelines of which the list shows the ledger's side at once; of more it names them first."""

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
    columns.PLACE,
    Column("offsets", "offsets", of=lambda part: part.range.span),
    Column("batch_id", "batch"),
    Column(
        "counted_by",
        "counted by",
        of=lambda part: "a replay" if part.kind is BatchKind.REPLAY else "a minute batch",
    ),
)


def pipelines_page(asked: Asked) -> Page | Response:
    """All pipelines that the user may see; a single one at once, unless Kafka is asked."""
    if len(asked.readable) == 1 and not asked.asks_kafka:
        return RedirectResponse(f"pipelines/{asked.readable[0]}/", headers=HEADERS)
    if len(asked.readable) > AT_ONCE_MAX and not asked.asks_kafka:
        found = [PipelineSummary.unread(name) for name in asked.readable]
    else:
        view = overview(asked.statuses, asked.readable, with_times=asked.asks_kafka)
        found = sorted(view.pipelines, key=attrgetter("urgency"))
    counted = last_hour(asked.ctx, [one.pipeline for one in found if one.result_table])
    standings = Counter((one.standing, one.health) for one in found)
    values = {"summaries": found, "counted": counted, "standings": standings}
    return Page("Pipelines", {**values, "has_asked": asked.asks_kafka})


def runbook_page(asked: Asked) -> Page:
    """An entry of the runbook, as it travels with the package."""
    entry = asked.query.get("entry", "")
    text = packaged("docs/runbook.md", below="files").read_text(encoding="utf-8")
    found = re.search(rf"(?ms)^(#+) {re.escape(entry)}$\n(.*?)(?=^#)", text) if entry else None
    if found is None:
        raise UsageError(
            f"the runbook has no entry {entry!r}", next_step="docs/runbook.md has all of them"
        )
    return Page(f"Runbook: {entry}", {"text": found[2].strip()})


def overview_page(asked: Asked) -> Page:
    """Health, the chart and the latest batches; Kafka is asked by :func:`kafka_page`."""
    shown = _span(asked)
    latest = batches(asked.ctx, asked.pipeline, limit=10).batches
    view = asked.statuses.of(asked.pipeline)
    lag = [read.waiting for read in shown.reads if read.waiting is not None]
    values = {
        "status": view,
        "minutes": shown,
        "spans": SPANS,
        "minute": MINUTE,
        "hours": _last_hours(asked, view.complete_before),
        "lags": lag,
        "rates": [read.records for read in shown.reads],
        **_neighbours(shown),
    }
    tables = (
        Table("batches", "Latest batches", columns.BATCH, latest, links=TO_BATCH),
        Table("minutes", "Lines by time", BARS, shown.bars),
    )
    return Page(asked.pipeline, values, tables)


def _span(asked: Asked) -> MinutesView:
    query = asked.query
    span = query.one_of("span", SPANS) or "1h"
    first, last = query.moment("first"), query.moment("last")
    by = query.get("by")
    return minutes(asked.ctx, asked.pipeline, span=SPANS[span], first=first, last=last, by=by)


def _neighbours(shown: MinutesView) -> dict[str, dict[str, str]]:
    """The spans as long as the one that is shown, before it and behind it; empty for none."""
    first, until, latest = shown.first_minute, shown.until_minute, shown.latest_minute
    found: dict[str, dict[str, str]] = {"earlier": {}, "later": {}}
    if first is None or until is None:
        return found
    moves = {"earlier": first - until, "later": until - first}
    for name, move in moves.items():
        if name == "earlier" or (latest is not None and until <= latest):
            ends = {"first": first + move, "last": until - MINUTE + move}
            found[name] = {key: f"{at:%Y-%m-%dT%H:%M}" for key, at in ends.items()}
    return found


def _last_hours(asked: Asked, complete_before: str | None) -> tuple[list[int], list[int]] | None:
    """The lines of each minute of the hour before the last complete hour, and of that one."""
    if complete_before is None:
        return None
    last = datetime.fromisoformat(complete_before) - MINUTE
    view = minutes(asked.ctx, asked.pipeline, span=120 * MINUTE, last=last)
    lines = {bar.first_minute: bar.lines for bar in view.bars}
    every = [lines.get(last - n * MINUTE, 0) for n in range(119, -1, -1)]
    return every[:60], every[60:]


def chart_page(asked: Asked) -> Response:
    """A span of the result, as the chart draws it."""
    return JSONResponse(document(_span(asked)), headers=HEADERS)


def minute_page(asked: Asked) -> Page:
    """The segments behind a minute."""
    view = minute(asked.ctx, asked.pipeline, asked.query.moment("at", needed=True))
    title = "Segments with lines of this minute"
    none = "none: its lines are of segments that were pruned, or it has no line"
    parts = Table("segments", title, PARTS, view.parts, links=TO_BATCH, empty=none)
    among = Among(minute=view.minute)
    letters = dead_letters(asked.ctx, asked.pipeline, among, limit=ROWS_MAX).dead_letters
    values = {
        "minute": view,
        "state": view.completion,
        "letters": Counter(letter.reason for letter in letters),
    }
    return Page(minute_text(view.minute), values, [parts])


def kafka_page(asked: Asked) -> Page:
    """What Kafka says now: lag, how old what waits is, and what is not read."""
    return Page(asked.pipeline, {"waiting": asked.statuses.waiting(asked.pipeline)})


def partitions_page(asked: Asked) -> Page:
    """A strip for each partition, as the ledger has it, or with Kafka's ends."""
    found = asked.statuses.waiting(asked.pipeline) if asked.asks_kafka else None
    view = found.status if found else asked.statuses.of(asked.pipeline)
    strips = [(p, stretches(p)) for p in view.partitions[:STRIPS_MAX]]
    values = {"status": view, "strips": strips, "waiting": found}
    return Page("Partitions", values, [partitions_table(view, found)])


def partitions_table(view: StatusView, asked: WaitingView | None) -> Table:
    """Partitions, with Kafka's answer where it was asked."""

    def condition(p: PartitionStatus) -> str:
        return str(p.condition) if asked or p.open_loss else ""

    def oldest(name: str, p: PartitionStatus) -> Any:
        return getattr(asked and asked.oldest.get(p.partition), name, None)

    shown = (
        *(replace(c, of=condition) if c.key == "condition" else c for c in columns.PARTITION),
        Column("oldest_written_at", "oldest uncounted", of=partial(oldest, "written_at")),
        Column("oldest_expires_at", "expires not before", of=partial(oldest, "expires_at")),
    )
    return Table("partitions", "Partitions", shown, view.partitions, empty="none is planned yet")


def stretches(p: PartitionStatus) -> Sequence[tuple[str, int, int, float, float]]:
    """What has become of the offsets of a partition, from the first known to the last.

    Parts are as wide as they have offsets, and wide enough to be seen.

    Returns:
        Of each part what it is (``gone``, ``counted``, ``planned``, ``lost`` or ``waiting``), its
        first offset and the first after it; in percent of the strip's width, where it begins and
        how wide it is.
    """
    earliest = p.kafka_earliest or 0
    following = p.next_offset if p.next_offset is not None else earliest
    at = p.start_offset if p.start_offset is not None else following
    ends = [("gone", at, min(following, earliest)), ("counted", at, following)]
    if p.open_loss is not None:
        ends.append(("lost", p.open_loss.from_offset, p.open_loss.until_offset))
    ends += [("planned", at, p.planned_until or 0), ("waiting", earliest, p.kafka_end or 0)]
    parts = []
    for kind, begin, end in ends:
        if (begin := max(begin, at)) < end:
            parts.append((kind, begin, end))
            at = end
    total = sum(end - begin for _, begin, end in parts)
    widths = [max(2.0, 100 * (end - begin) / total) for _, begin, end in parts]
    shares = [100 * width / sum(widths) for width in widths]
    return [(*part, round(sum(shares[:n]), 2), round(shares[n], 2)) for n, part in enumerate(parts)]


def batches_page(asked: Asked) -> Page:
    """The ledger's batches, with filters."""
    query, limit = asked.query, asked.query.limit()
    found = batches(
        asked.ctx,
        asked.pipeline,
        state=query.one_of("state", BatchState),
        kind=query.one_of("kind", BatchKind),
        before=query.number("before"),
        limit=limit,
    ).batches
    older = found[-1].batch_id if len(found) == limit else None
    values = {"states": list(BatchState), "kinds": list(BatchKind), "older": older}
    listed = Table("batches", "Batches, newest first", columns.BATCH, found, links=TO_BATCH)
    return Page("Batches", values, [listed])


def batch_page(asked: Asked) -> Page:
    """One batch with its ranges.

    Raises:
        UnknownBatchError: The pipeline has no batch with this id.
    """
    pipeline, batch_id = asked.pipeline, asked.path.number("batch_id") or 0
    # To one of another pipeline the user may have no right: it is as unknown as one that is not.
    view = batch(asked.ctx, batch_id, rows=ROWS, pipeline=pipeline)
    dag_id = pipeline + REPLAY_SUFFIX if view.kind == BatchKind.REPLAY else pipeline
    return Page(f"Batch {batch_id}", {"batch": view, "dag_id": dag_id}, batch_tables(view))


def batch_tables(view: BatchView) -> tuple[Table, ...]:
    """The ranges of a batch, and the rows to which it adds most."""

    def label(name: str, row: ResultRow) -> str:
        return row.labels[name]

    rows = (
        Column("minute", "minute", of=lambda row: row.log_time[:16]),
        *(Column(f"label_{name}", name, of=partial(label, name)) for name in view.columns.labels),
        Column("lines", "lines", of=attrgetter("log_count")),
    )
    superseding = {"superseded_by_batch": "{}"}
    return (
        Table("ranges", "Ranges", columns.SEGMENT, view.ranges, links=superseding),
        Table("rows", "Rows of the result to which it adds most", rows, view.minutes),
    )
