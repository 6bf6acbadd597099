"""What a pipeline adds to MySQL's tables in a day, and how large they are. Changes nothing."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.config.names import KEPT_SUFFIX
from tally.ledger.tables import Tables, listed
from tally.mysql.connection import is_mariadb
from tally.mysql.transactions import Row, Transaction

_LATEST: Final = (
    "from batch b join segment s using (batch_id) {} where b.pipeline = %s"
    " and b.state = 'committed' and b.committed_at >= %s"
)
ROWS_MIN: Final = 10_000
"""Of fewer rows the average size is not known: InnoDB takes room by pages."""
_DAY_S: Final = timedelta(days=1).total_seconds()


@dataclass(frozen=True, kw_only=True, slots=True)
class TableGrowth:
    """A table that grows with a pipeline."""

    table: str
    """Its name; of the server of the kept lines those of ``rows_table``."""
    rows_a_day: int
    """Rows that the pipeline has added in the last 24 hours, or would at the rate of its first."""
    bytes_a_day: int | None
    """The same in bytes of data and indexes, by the average row of the table; None while it has few
    rows, which its size says nothing of."""
    bytes: int
    """Its size now, with the rows of all pipelines."""


def ledger_growth(tx: Transaction, tables: Tables, pipeline: str) -> list[TableGrowth]:
    """How the tables of the ledger and the result grow.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        pipeline: The pipeline.
    """
    since, of_a_day = _since(tx, pipeline)
    joined = f"join `{tables.contributions}` c using (segment_id)"
    keys = listed(tables.keys, "c")
    counted = {
        "batch": ("count(distinct b.batch_id)", ""),
        "segment": ("count(*)", ""),
        tables.contributions: ("count(*)", joined),
        "dead_letter": (
            "coalesce(sum(t.dead_letters), 0)",
            "join dead_letter_total t using (segment_id)",
        ),
        tables.result: (f"count(distinct {keys})", joined),
    }
    found = {
        table: int(tx.scalar(f"select {what} {_LATEST.format(of)}", (pipeline, since)))
        for table, (what, of) in counted.items()
    }
    return _sized(tx, {table: round(number / of_a_day) for table, number in found.items()})


def kept_growth(
    ledger: Transaction, lines: Transaction, tables: Tables, pipeline: str
) -> list[TableGrowth]:
    """How the table of kept lines grows; nothing for files and where none are kept.

    Args:
        ledger: An open transaction of the ledger.
        lines: One of the server of the lines.
        tables: The pipeline's tables.
        pipeline: The pipeline.
    """
    since, of_a_day = _since(ledger, pipeline)
    matched = ledger.scalar(
        f"select coalesce(sum(s.matched), 0) {_LATEST.format('')}", (pipeline, since)
    )
    return _sized(lines, {f"{tables.rows_view}{KEPT_SUFFIX}": round(int(matched) / of_a_day)})


def _since(tx: Transaction, pipeline: str) -> tuple[datetime, float]:
    """From when on batches are looked at, and which share of a day that is."""
    now = tx.now()
    first = tx.scalar(
        "select planned_at from batch where pipeline = %s order by batch_id limit 1", (pipeline,)
    )
    since = max(first or now, now - timedelta(days=1))
    return since, max((now - since).total_seconds(), 60) / _DAY_S


def _sized(tx: Transaction, rows: dict[str, int]) -> list[TableGrowth]:
    """Tables with the rows that are added in a day; those that are not there are left out."""
    if not is_mariadb(tx.scalar("select version()")):
        tx.execute("set session information_schema_stats_expiry = 0")  # else up to a day old
    sizes = {
        row["name"]: row
        for row in tx.rows(
            "select table_name as name, coalesce(data_length + index_length, 0) as bytes,"
            " greatest(coalesce(table_rows, 0), 1) as number from information_schema.tables"
            " where table_schema = database() and table_name in %s",
            (list(rows),),
        )
    }
    return [
        TableGrowth(
            table=table,
            rows_a_day=number,
            bytes_a_day=_bytes_of(number, sizes[table]),
            bytes=int(sizes[table]["bytes"]),
        )
        for table, number in rows.items()
        if table in sizes
    ]


def _bytes_of(rows: int, size: Row) -> int | None:
    """How large rows of a table are, by the average one."""
    few = size["number"] < ROWS_MIN
    return None if few else round(rows * int(size["bytes"]) / int(size["number"]))
