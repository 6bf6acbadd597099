"""Where a peer writes: its counts and the offsets that it has read; Tally's counts are read, too.

Needs nothing but PyMySQL, so that peers in an environment of their own have it as well.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql


@dataclass(frozen=True, slots=True)
class Store:
    """The tables of one peer; picklable, so that Spark's tasks have it."""

    login: Mapping[str, Any]
    """Host, port, user, password and database, as ``pymysql.connect`` takes them."""
    name: str
    """What the tables' names begin with."""

    @contextmanager
    def transaction(self) -> Iterator[pymysql.cursors.Cursor]:
        """A transaction on a connection of its own; committed at its end."""
        with closing(pymysql.connect(**self.login)) as connection:
            with connection.cursor() as cursor:
                yield cursor
            connection.commit()

    def create(self) -> None:
        """Create the tables, empty; what an earlier round wrote is gone."""
        name = self.name
        with self.transaction() as tx:
            tx.execute(f"drop table if exists {name}, {name}_offsets, {name}_batches")
            tx.execute(f"create table {name} (log_time datetime primary key, log_count bigint)")
            tx.execute(f"create table {name}_offsets (number int primary key, next_offset bigint)")
            tx.execute(f"create table {name}_batches (batch_id bigint primary key)")

    def add(self, tx: pymysql.cursors.Cursor, counts: Mapping[str, int]) -> None:
        """Add counts by minute, ``YYYY-MM-DD HH:MM``, to those that are there."""
        tx.executemany(
            f"insert into {self.name} values (%s, %s) as new"
            f" on duplicate key update log_count = {self.name}.log_count + new.log_count",
            sorted(counts.items()),
        )

    def move(self, tx: pymysql.cursors.Cursor, ends: Mapping[int, int]) -> None:
        """Write next offsets, whatever was there."""
        tx.executemany(
            f"insert into {self.name}_offsets values (%s, %s) as new"
            " on duplicate key update next_offset = new.next_offset",
            sorted(ends.items()),
        )

    def commit(self, counts: Mapping[str, int], ends: Mapping[int, int]) -> None:
        """Counts and offsets in one transaction."""
        with self.transaction() as tx:
            self.add(tx, counts)
            self.move(tx, ends)

    def counts(self) -> dict[str, int]:
        """What was counted, by minute."""
        with self.transaction() as tx:
            tx.execute(f"select log_time, log_count from {self.name}")
            return {f"{minute:%Y-%m-%d %H:%M}": int(count) for minute, count in tx.fetchall()}

    def offsets(self) -> dict[int, int]:
        """The next offset of each partition that is known."""
        with self.transaction() as tx:
            tx.execute(f"select number, next_offset from {self.name}_offsets")
            return dict(tx.fetchall())
