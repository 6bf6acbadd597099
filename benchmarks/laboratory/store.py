"""The tables of the methods that are not Tally's: counts by minute, and offsets."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql

CREATE = (
    "drop table if exists lab_count, lab_offset, lab_batch",
    "create table lab_count (log_time datetime primary key, n int not null)",
    "create table lab_offset (partition_id int primary key, next_offset bigint not null)",
    "create table lab_batch (batch_id bigint primary key)",
)


@dataclass(frozen=True, slots=True)
class Store:
    """One database; picklable, so that tasks have it."""

    login: Mapping[str, Any]
    """Arguments of a connection."""

    @contextmanager
    def transaction(self) -> Iterator["pymysql.cursors.DictCursor"]:
        """A transaction of a connection of its own; committed at its end."""
        with closing(
            pymysql.connect(**self.login, cursorclass=pymysql.cursors.DictCursor)
        ) as connection:
            with connection.cursor() as cursor:
                yield cursor
            connection.commit()

    def offsets(self) -> dict[int, int]:
        """The next offset of each partition that is known."""
        with self.transaction() as tx:
            tx.execute("select partition_id, next_offset from lab_offset")
            return {row["partition_id"]: row["next_offset"] for row in tx.fetchall()}


def add(tx: "pymysql.cursors.DictCursor", counts: Mapping[str, int]) -> None:
    """Add counts to those that are there."""
    if counts:
        tx.executemany(
            "insert into lab_count (log_time, n) values (%s, %s) as more"
            " on duplicate key update n = lab_count.n + more.n",
            sorted(counts.items()),
        )


def move(tx: "pymysql.cursors.DictCursor", ends: Mapping[int, int]) -> None:
    """Write next offsets, whatever was there."""
    tx.executemany(
        "insert into lab_offset values (%s, %s) as new"
        " on duplicate key update next_offset = new.next_offset",
        sorted(ends.items()),
    )
