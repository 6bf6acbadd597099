"""The result table, read for people."""

from tally.mysql import Transaction


def minutes(tx: Transaction, table: str, *, last: int | None = None) -> dict[str, int]:
    """Counts by minute, ``YYYY-MM-DD HH:MM``, oldest first.

    Args:
        tx: An open transaction.
        table: The pipeline's result table, a validated name.
        last: Only so many of the latest minutes; all when None.
    """
    limit = "" if last is None else f" order by log_time desc limit {last:d}"
    rows = tx.rows(
        "select date_format(log_time, %s) as minute, log_count"
        f" from (select log_time, log_count from `{table}`{limit}) as chosen order by log_time",
        ("%Y-%m-%d %H:%i",),
    )
    return {row["minute"]: int(row["log_count"]) for row in rows}
