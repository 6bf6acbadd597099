"""The pages of single records: the lines behind a count, and a record as Kafka has it.

Only for users with a right of their own (:data:`tally.airflow.console.access.READ_LINES`).
"""

from typing import Any

from fastapi import status

from tally.airflow.console.access import READ_LINES, may
from tally.airflow.console.page import Asked, Page, Table
from tally.ledger.parts import Of
from tally.reading import columns
from tally.reading.dead_letters import read_partition
from tally.reading.lines import PAGE_BOUNDS, lines, record_at


def lines_page(asked: Asked) -> Page:
    """The lines behind a minute, a value of a label in it, or a batch."""
    if not may(asked.user, READ_LINES, asked.pipeline):
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
    if not may(asked.user, READ_LINES, asked.pipeline):
        return _refused()
    where = read_partition(asked.query.get("partition", ""), "partition")
    offset = asked.query.number("offset") or 0
    view = record_at(asked.ctx, asked.pipeline, where, offset)
    values: dict[str, Any] = {"record": view, "where": f"{where} {offset}"}
    return Page(f"Record {where} {offset}", values)


def _refused() -> Page:
    return Page("Lines", {"lines": None, "record": None}, code=status.HTTP_403_FORBIDDEN)
