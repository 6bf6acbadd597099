"""Pipelines that commit partition by partition, and what the tests of them do and read."""

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow.parquet as pq

from tally.aggregates.counts import CountRequest, KeptLine
from tally.context import OpenContext, Reader
from tally.counting.outcomes import Ran
from tally.counting.run import run_batches
from tally.deliveries.contract import LineWriter
from tally.deliveries.kept_lines import KeptLines, keep
from tally.ledger import batches
from tally.replay.run import run_replay
from tally_local.stack.stack import Stack
from tests.python_reader import lines_of
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = [
    "2017-07-30 14:09:08 ERROR a",
    "2017-07-30 14:09:59 ERROR b",
    "2017-07-30 14:10:00 INFO c",
    "2017-07-30 14:11:00 ERROR d",
]
COUNTED = {"2017-07-30 14:09": 2, "2017-07-30 14:11": 1}
BAD = ["2017-07-30 14:09:08", "no time", None, "2017-02-30 14:09:08 ERROR no such day"]

UNPUBLISHED = patch.object(KeptLines, "show_soon", lambda _: None)
"""While a driver never shows what it commits."""


def line(offset: int, text: str) -> KeptLine:
    return KeptLine(offset, "2017-07-30 14:09:00", text.encode(), None)


def around(reader: Reader, count_each: Callable[..., Any]) -> Any:
    """A reader that counts each range by a function, which gets the real one first."""
    return SimpleNamespace(count=reader.count, count_each=partial(count_each, reader))


def delivered(delivery: str, stack: Stack, folder: Path, **keys: Any) -> "Delivery":
    """A pipeline of this delivery; of files, in ``kept`` below the folder."""
    kept = {"files_url": f"{folder}/kept"} if delivery == "files" else {}
    return Delivery.create(stack, folder, delivery=delivery, **kept, **keys)


class Delivery(World):
    """A pipeline of which each partition is a batch; counts without Spark unless it is given."""

    # --- steps

    def planned_in(self, *partitions: int) -> list[int]:
        """Write the lines to some partitions; returns the batches that are planned."""
        for partition in partitions:
            self.produce(LINES, partition)
        return [batch.batch_id for batch in self.plan().batches]

    def run_all(
        self, ids: Sequence[int], counting: "SparkSession | Reader | None" = None
    ) -> list[Ran]:
        """Run batches."""
        return list(run_batches(self.context(counting or self.reader), ids))

    def run_open(self, counting: "SparkSession | Reader | None" = None) -> list[Ran]:
        """Plan, and run what is open."""
        ids = self.planned_in()
        return self.run_all(ids, counting) if ids else []

    def count_lines(self, *partitions: int) -> list[Ran]:
        """Write the lines to some partitions, the first one by default, and count them."""
        return self.run_all(self.planned_in(*(partitions or (0,))))

    def replay(self, counting: "SparkSession | Reader | None" = None, **keys: Any) -> list[Ran]:
        """Replay everything, by other settings if any."""
        if keys:
            self.configure(**keys)
        replay_id = self.ask_replay().replay_id
        return list(run_replay(self.context(counting or self.reader), replay_id))

    def attempt(self, batch_id: int) -> tuple[OpenContext, CountRequest]:
        """Claim a batch of one partition, as whoever runs it does."""
        ctx = self.context()
        (batch,) = ctx.database.run(lambda tx: batches.claim(tx, [batch_id], "a test"))
        ranges = [s.range for s in batch.segments]
        return (lambda: ctx), CountRequest(pipeline=self.pipeline, ranges=ranges, batch=batch)

    def begun(self, batch_id: int, *texts: str) -> LineWriter:
        """A set that an attempt has begun to write."""
        lines = keep(*self.attempt(batch_id))
        lines.add(lines_of(line(offset, text) for offset, text in enumerate(texts)))
        return lines

    @property
    def delivery(self) -> KeptLines:
        """What shows the lines, as whoever runs the pipeline does it."""
        return KeptLines(self.context(), self.pipeline)

    # --- what a test reads, by means of its own

    def states(self) -> dict[int, str]:
        """The state of each partition's only segment."""
        return {s["partition_id"]: s["state"] for s in self.segments()}

    def kept(self, columns: str = "partition_id, record_offset, value") -> list[tuple[Any, ...]]:
        """What readers see."""
        results, pipeline = self.settings.results, self.pipeline
        where = {} if results is None else {"database": results.database}
        with self.connect(**where) as connection, connection.cursor() as cursor:
            if pipeline.files_url is None:
                cursor.execute(f"select {columns} from `{pipeline.rows_view}`")
                return sorted(tuple(row.values()) for row in cursor.fetchall())
            cursor.execute(f"select file from `{pipeline.rows_view}`")
            files = [row["file"].removeprefix("file://") for row in cursor.fetchall()]
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        return sorted(tuple(row[name] for name in columns.split(", ")) for row in rows)

    def kept_lines(self) -> list[tuple[int, int, str]]:
        """Partition, offset and text of what readers see."""
        return [(partition, offset, value.decode()) for partition, offset, value in self.kept()]

    def all_kept(self) -> int:
        """How many lines there are, whatever readers see."""
        if self.pipeline.files_url is None:
            return int(self.rows(f"select count(*) as n from `{self.name}_rows__kept`")[0]["n"])
        files = (self.folder / "lines").rglob("*.parquet")
        return sum(pq.read_metadata(file).num_rows for file in files)

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return Path((self.pipeline.files_url or "").removeprefix("file://"))

    def listed(self) -> list[str]:
        """The live files by the list beside them."""
        return (self.folder / "_live/files.txt").read_text().splitlines()

    # --- another database for the lines

    def new_database(self) -> str:
        """An empty database that the application's user may do anything with."""
        name, user = f"other_{secrets.token_hex(4)}", self.settings.mysql.user
        self.as_root(f"create database {name}", f"grant all on {name}.* to {user}@'127.0.0.1'")
        return name

    def keep_in(self, database: str, server: World | None = None) -> None:
        """Let the lines be in another database from now on, also on the server of another world."""
        mysql = (server or self).settings.mysql
        section = (
            f'[results]\nhost = "{mysql.host}"\nport = {mysql.port}\nuser = "{mysql.user}"\n'
            f'password = "{mysql.password.get_secret_value()}"\ndatabase = "{database}"\n'
        )
        self.config.write_text(f"{self.config.read_text()}\n{section}")
