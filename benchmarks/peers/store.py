"""Where a peer writes: its result and the offsets that it has read, in one transaction.

Needs nothing but PyMySQL, so that peers in an environment of their own have it as well.
"""

from collections.abc import Mapping
from typing import Any

import pymysql

Login = Mapping[str, Any]
"""Host, port, user, password and database, as ``pymysql.connect`` takes them."""


def prepare(login: Login, peer: str) -> None:
    """Create a peer's tables, empty; what an earlier round wrote is gone."""
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute(f"drop table if exists {peer}, {peer}_offsets")
        cursor.execute(f"create table {peer} (log_time datetime primary key, log_count bigint)")
        cursor.execute(f"create table {peer}_offsets (number int primary key, next_offset bigint)")


def commit(login: Login, peer: str, counts: Mapping[str, int], ends: Mapping[int, int]) -> None:
    """Add counts by minute, ``YYYY-MM-DD HH:MM``, and set the offsets behind the last record."""
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.executemany(
            f"insert into {peer} values (%s, %s) as new"
            f" on duplicate key update log_count = {peer}.log_count + new.log_count",
            [(f"{minute}:00", count) for minute, count in sorted(counts.items())],
        )
        cursor.executemany(
            f"insert into {peer}_offsets values (%s, %s) as new"
            " on duplicate key update next_offset = new.next_offset",
            sorted(ends.items()),
        )
        connection.commit()


def result(login: Login, peer: str) -> dict[str, int]:
    """What a peer has counted, by minute."""
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute(f"select log_time, log_count from {peer}")
        return {f"{minute:%Y-%m-%d %H:%M}": int(count) for minute, count in cursor.fetchall()}
