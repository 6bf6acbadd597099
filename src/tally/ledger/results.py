"""Reading the result table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tally.aggregates.aggregate import BYTES, LINES, TIME
from tally.ledger.tables import Tables, listed
from tally.mysql.transactions import Row, Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultRow:
    """One row of the result, or of what a batch adds to it."""

    log_time: str
    """The minute on the lines' own clock, ``YYYY-MM-DD HH:MM:00``."""
    labels: Mapping[str, str] = field(metadata={"omitted": "when empty"})
    """Value by label column; absent in JSON for a result without labels."""
    log_count: int
    """Lines."""
    log_bytes: int | None = field(metadata={"omitted": "when None"})
    """Bytes; None, and absent in JSON, where they are not measured."""


def result_row(tables: Tables, row: Row) -> ResultRow:
    """A row of ``tables.columns`` as a value."""
    return ResultRow(
        log_time=str(row[TIME]),
        labels={label.column: row[label.column] for label in tables.labels},
        log_count=int(row[LINES]),
        log_bytes=int(row[BYTES]) if tables.has_bytes else None,
    )


def result_rows(
    tx: Transaction,
    tables: Tables,
    *,
    last: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> list[ResultRow]:
    """The result, oldest minute first, then by labels.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        last: How many of the latest minutes; all when None.
        since: The first minute; no limit when None.
        until: The last minute, itself included; no limit when None.
    """
    bounds = {f"`{TIME}` >= %s": since, f"`{TIME}` <= %s": until}
    asked = {sql: minute for sql, minute in bounds.items() if minute is not None}
    where = f" where {' and '.join(asked)}" if asked else ""
    latest = ""
    if last is not None:
        latest = (
            f" join (select distinct `{TIME}` from `{tables.result}`{where}"
            f" order by `{TIME}` desc limit {last:d}) as latest using (`{TIME}`)"
        )
        where = ""
    parameters: list[Any] = list(asked.values())
    rows = tx.rows(
        f"select {listed(tables.columns)} from `{tables.result}`{latest}{where}"
        f" order by {listed(tables.keys)}",
        parameters,
    )
    return [result_row(tables, row) for row in rows]


def lines_by_minute(tx: Transaction, tables: Tables, *, last: int | None = None) -> dict[str, int]:
    """Lines by minute, ``YYYY-MM-DD HH:MM``, whatever their labels; oldest first.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        last: How many of the latest minutes; all when None.
    """
    found: dict[str, int] = {}
    for row in result_rows(tx, tables, last=last):
        minute = row.log_time[: len("YYYY-MM-DD HH:MM")]
        found[minute] = found.get(minute, 0) + row.log_count
    return found
