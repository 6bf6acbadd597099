"""The result table, read for people."""

from typing import Any

from tally.mysql.transactions import Transaction


def minutes(
    tx: Transaction,
    table: str,
    *,
    last: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> dict[str, int]:
    """Counts by minute, ``YYYY-MM-DD HH:MM``, oldest first.

    Args:
        tx: An open transaction.
        table: The pipeline's result table, a validated name.
        last: Only so many of the latest minutes; all when None.
        since: The first minute; the table's own when None.
        until: The last minute, itself included; the table's own when None.
    """
    bounds = {"log_time >= %s": since, "log_time <= %s": until}
    asked = {sql: minute for sql, minute in bounds.items() if minute is not None}
    where = f" where {' and '.join(asked)}" if asked else ""
    limit = "" if last is None else f" order by log_time desc limit {last:d}"
    parameters: list[Any] = ["%Y-%m-%d %H:%i", *asked.values()]
    rows = tx.rows(
        "select date_format(log_time, %s) as minute, log_count"
        f" from (select log_time, log_count from `{table}`{where}{limit}) as chosen"
        " order by log_time",
        parameters,
    )
    return {row["minute"]: int(row["log_count"]) for row in rows}
