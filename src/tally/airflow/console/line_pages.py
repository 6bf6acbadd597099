"""The pages of single records: the lines behind a count, one as Kafka has it, and dead letters.

Bytes are only for users with a right of their own: :data:`tally.airflow.console.access.READ_LINES`.
"""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import status

from tally.airflow.console.page import ROWS_MAX, TO_BATCH, TO_RECORD, Asked, Page, Table
from tally.errors import UsageError
from tally.ledger.dead_letters import Among
from tally.ledger.parts import Of
from tally.lines.format import MalformedReason
from tally.reading import columns
from tally.reading.columns import Column
from tally.reading.dead_letters import (
    ReasonsView,
    alike,
    dead_letters,
    read_partition,
    reasons,
)
from tally.reading.lines import PAGE_BOUNDS, lines
from tally.reading.records import record_at

KINDS: Final = (
    Column("number", "dead letters"),
    Column("reason", "reason"),
    Column("first_seen", "first seen"),
    Column("last_seen", "last seen"),
    Column("partition", "partition", of=lambda kind: str(kind.example.partition)),
    Column("offset", "newest", of=lambda kind: kind.example.offset),
    Column("value", "its text", of=lambda kind: kind.example.value, is_raw=True),
)
BYTES: Final = frozenset({"value", "value_base64"})
"""Columns with bytes of records, for those who may read the lines."""
REASONS: Final = (
    Column("reason", "reason", of=itemgetter(0)),
    Column("dead_letters", "dead letters", of=itemgetter(1)),
)


def lines_page(asked: Asked) -> Page:
    """The lines behind a minute, a value of a label in it, or a batch."""
    if not asked.may_read_lines:
        return _refused()
    query = asked.query
    partition = query.get("partition")
    of = Of(
        minute=query.moment("at"),
        labels={query["label"]: query.get("value", "")} if "label" in query else {},
        batch_id=query.number("batch"),
        partition=read_partition(partition, "partition") if partition else None,
    )
    view = lines(asked.ctx, asked.pipeline, of, PAGE_BOUNDS)
    title = "Lines" if view.found <= len(view.lines) else f"The first {len(view.lines)} lines"
    return Page("Lines", {"lines": view}, [Table("lines", title, columns.LINE, view.lines)])


def record_page(asked: Asked) -> Page:
    """A record of Kafka, whole, and what becomes of it by today's rules."""
    if not asked.may_read_lines:
        return _refused()
    where = read_partition(asked.query.get("partition", ""), "partition")
    offset = asked.query.number("offset") or 0
    view = record_at(asked.ctx, asked.pipeline, where, offset)
    values: dict[str, Any] = {"record": view, "where": f"{where} {offset}"}
    return Page(f"Record {where} {offset}", values)


def _refused() -> Page:
    return Page("Lines", {"lines": None, "record": None}, code=status.HTTP_403_FORBIDDEN)


def dead_letters_page(asked: Asked) -> Page:
    """Dead letters of what is in the result, and how many there are of each reason."""
    query = asked.query
    if "text" in query and not asked.may_read_lines:
        raise UsageError(
            "you may not search the lines",
            next_step=f"ask for the right to edit the task logs of {asked.pipeline} in Airflow",
        )
    partition = query.get("partition")
    among = Among(
        batch_id=query.number("batch"),
        partition=read_partition(partition, "partition") if partition else None,
        since=query.moment("since", zone=True),
        before=query.moment("until", zone=True),
        minute=query.moment("minute"),
    )
    skip, limit = query.number("skip") or 0, query.limit()
    read = dead_letters(
        asked.ctx,
        asked.pipeline,
        among,
        reason=query.one_of("reason", MalformedReason),
        text=query.get("text"),
        skip=skip,
        limit=ROWS_MAX,
    ).dead_letters
    found = read[:limit]
    totals = reasons(asked.ctx, asked.pipeline, among)
    values = {
        "letters": found,
        "reasons": list(MalformedReason),
        "totals": totals,
        "more": skip + limit if len(found) == limit else None,
        "batches": sorted({letter.batch_id for letter in found}),
    }
    if among.minute is not None:  # no totals are kept by minute
        counted = Counter(letter.reason for letter in read)
        totals = ReasonsView(totals=dict(counted.most_common()), is_of_latest=False)

    def shown(of: Sequence[Column]) -> Sequence[Column]:
        return of if asked.may_read_lines else [c for c in of if c.key not in BYTES]

    others = urlencode({key: query[key] for key in query if key not in {"reason", "skip"}})
    to_reason = {"reason": f"dead-letters?{others}&reason={{}}"}
    not_understood = "Records that could not be understood"
    kinds = f"The latest {len(read):,}, by likeness: their texts differ in numbers alone"
    links = {**TO_BATCH, "offset": TO_RECORD}
    tables = (
        Table("reasons", "By reason", REASONS, totals.totals.items(), links=to_reason),
        Table("kinds", kinds, shown(KINDS), alike(read), links={"offset": TO_RECORD}),
        Table("dead_letters", not_understood, shown(columns.DEAD_LETTER), found, links=links),
    )
    return Page("Dead letters", values, tables)
