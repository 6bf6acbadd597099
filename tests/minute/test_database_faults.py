"""Commits on a faulty MySQL: full, altered, misconfigured, or cut off."""

import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from tally.app.migrate import migrate
from tally.config.loading import load_settings
from tally.config.servers import MySQLSettings
from tally.config.settings import Settings
from tally.deliveries.contract import Result
from tally.errors import (
    DataLossError,
    FencedError,
    MySQLUnavailableError,
    StatementError,
    TransactionRetryError,
)
from tally.model import Contribution, SegmentTotals
from tally.mysql.connection import connect
from tally.testing.statements import at_statement
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.conftest import PROJECT
from tests.minute.cuts import cut_at
from tests.minute.test_commit import (
    LINE,
    MINUTE,
    assert_untouched,
    claimed,
    commit,
    planned,
    result,
)
from tests.waiting import wait_until
from tests.world import World

pytestmark = pytest.mark.stack

FULL = 1114
STEPS = {
    "the offsets move": "^update partition_offset",
    "contributions are written": "^insert into `segment_count`",
    "the result changes": "^insert into `p_",
    "dead letters are written": "^insert into dead_letter",
    "segments become live": "^update segment s join json_table",
}


@pytest.mark.parametrize("statement", STEPS.values(), ids=STEPS)
def test_a_connection_that_is_cut_inside_the_transaction_is_not_replaced(
    world: World, statement: str
) -> None:
    """The whole transaction is lost: the rest is not written on another connection."""
    batch = claimed(world, planned(world))
    with pytest.raises(MySQLUnavailableError):
        commit(cut_at(world, statement), batch, result(batch, letters=1))
    assert_untouched(world)
    assert commit(world, batch, result(batch, letters=1))
    assert world.counts() == {"2017-07-30 14:09": 4}
    assert world.audit().holds


@contextmanager
def of_the_server(world: World) -> Iterator[World]:
    """Autocommit left on for the server."""
    with world.global_variable("init_connect", "set autocommit = 1"):
        yield world


@contextmanager
def of_the_session(world: World) -> Iterator[World]:
    """Autocommit left on in a session, as by a pooling proxy."""

    def then_on(settings: MySQLSettings) -> "pymysql.Connection[Any]":
        connection = connect(settings)
        with connection.cursor() as cursor:
            cursor.execute("set session autocommit = 1")
        return connection

    yield world.through(database=replace(world.database, open=then_on))


@pytest.mark.parametrize("autocommit", [of_the_server, of_the_session])
def test_with_autocommit_left_on_a_failing_commit_leaves_nothing_behind(
    world: World, autocommit: Callable[[World], AbstractContextManager[World]]
) -> None:
    """The transaction begins explicitly, so no statement of it commits alone."""
    with autocommit(world) as careless:
        batch = claimed(careless, planned(careless))
        with pytest.raises(DataLossError):
            commit(careless, batch, result(batch, minutes={MINUTE: 2}))
        assert_untouched(careless)
        assert commit(careless, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 6}


@pytest.mark.parametrize("flags", [0, CLIENT.FOUND_ROWS], ids=["changed", "matched"])
def test_affected_rows_may_mean_changed_or_matched(world: World, flags: int) -> None:
    """Drivers and proxies differ in what they count; a lost compare-and-set shows in either."""
    flagged = replace(world.database, open=partial(connect, client_flag=flags))
    world = world.through(database=flagged)
    batch = claimed(world, planned(world))
    assert commit(world, batch, result(batch))
    batch = claimed(world, planned(world))
    world.execute(
        "update partition_offset o join topic_incarnation i using (incarnation_id)"
        " set o.next_offset = 5 where i.pipeline = %s and o.partition_id = 1",
        (world.name,),
    )
    with pytest.raises(FencedError, match="1 of 2 partitions could move"):
        commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.offsets()[0] == (0, 3)


def test_a_servers_limit_of_rows_hides_nothing_from_the_audit(world: World) -> None:
    """The violation is in the last of more rows than the server's own limit."""
    for _ in range(2):
        batch = claimed(world, planned(world))
        assert commit(world, batch, result(batch))
    with world.global_variable("sql_select_limit", 2):
        assert world.audit().holds
        world.execute(
            "update partition_offset o join topic_incarnation i using (incarnation_id)"
            " set o.next_offset = 7 where i.pipeline = %s and o.partition_id = 1",
            (world.name,),
        )
        (finding,) = world.audit().violations
    assert finding.detail == "counted up to 6, but next_offset is 7"


def test_a_table_that_is_altered_between_read_and_commit_takes_the_counts(world: World) -> None:
    """DDL that leaves the columns alone changes nothing; the batch commits once."""
    batch = claimed(world, planned(world))
    with closing(world.connect_as_root()) as root, root.cursor() as cursor:
        cursor.execute(f"alter table `{world.name}` add column note varchar(20) null")
        cursor.execute(f"alter table `{world.name}` add index by_count (log_count)")
    assert commit(world, batch, result(batch))
    assert not commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.audit().holds


def test_ddl_under_a_commit_waits_for_it_and_commits_nothing_of_it(world: World) -> None:
    """The result table is altered in the middle of a transaction that then fails."""
    batch = claimed(world, planned(world))
    altering = threading.Thread(target=alter, args=(world,))

    def start_altering() -> None:
        altering.start()
        wait_until_ddl_waits(world)

    # The last step but one: the check of what was written fails.
    listen = at_statement(r"^select s\.segment_id, s\.state, .* written_matched", start_altering)
    altered = world.through(database=replace(world.database, listen=listen))
    with pytest.raises(DataLossError):
        commit(altered, batch, result(batch, minutes={MINUTE: 2}))
    altering.join()
    assert_untouched(world)
    assert "note" in world.rows(f"show create table `{world.name}`")[0]["Create Table"]
    assert commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 6}


def alter(world: World) -> None:
    """Add a column to the result table."""
    with closing(world.connect_as_root()) as root, root.cursor() as cursor:
        cursor.execute(f"alter table `{world.name}` add column note varchar(20) null")


def wait_until_ddl_waits(world: World) -> None:
    """Wait until a statement waits for the metadata lock of the result table."""
    with closing(world.connect_as_root()) as root, root.cursor() as cursor:
        wait_until(
            lambda: cursor.execute(
                "select 1 from information_schema.processlist"
                " where info like %s and state like '%%metadata lock%%'",
                (f"alter table `{world.name}`%",),
            )
        )


def test_a_table_that_stays_locked_is_a_timeout(world: World) -> None:
    """By default MySQL would wait a year for a table's metadata lock."""
    batch = claimed(world, planned(world))
    database = world.database.adjusted(lock_wait_timeout_s=1, statement_timeout_s=20)
    impatient = world.through(database=database)
    with closing(world.connect_as_root()) as root, root.cursor() as cursor:
        cursor.execute(f"lock tables `{world.name}` write")
        with pytest.raises(TransactionRetryError, match="Lock wait timeout"):
            commit(impatient, batch, result(batch))
    assert_untouched(world)
    assert commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 6}


@dataclass
class FullWorld(World):
    """A world whose ledger is on a MySQL of its own."""

    server: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The configuration, with the other server."""
        return load_settings(self.config, overrides={"mysql": self.server})

    def fill(self) -> None:
        """Write into the tablespace until nothing more fits."""
        with closing(self.connect_as_root(autocommit=True)) as root, root.cursor() as cursor:
            cursor.execute("create table filler (b longblob) tablespace = innodb_system")
            for size in (1 << 20, 1 << 14, 1 << 10):
                while fits(cursor, size):
                    pass

    def free(self) -> None:
        """Free space, as an administrator would."""
        with closing(self.connect_as_root()) as root, root.cursor() as cursor:
            cursor.execute("drop table filler")


def fits(cursor: "pymysql.cursors.Cursor", size: int) -> bool:
    """Write so many bytes; returns whether there was room."""
    try:
        cursor.execute("insert into filler values (repeat('x', %s))", (size,))
    except pymysql.err.OperationalError as error:
        if error.args[0] != FULL:
            raise
        return False
    return True


@pytest.fixture
def full(world: World, tmp_path: Path) -> Iterator[FullWorld]:
    """Counts go to a server of the test's own, into a tablespace that cannot grow."""
    stack = Stack(
        project=PROJECT,
        home=tmp_path / "home",
        mysql_options=["--innodb-data-file-path=ibdata1:12M"],
    )
    stack.up([Part.MYSQL])
    try:
        server = tomllib.loads(stack.overlay.read_text(encoding="utf-8"))["mysql"]
        full = FullWorld(
            stack, world.config, world.name, world.topic, keys=world.keys, server=server
        )
        migrate(full.database, full.settings)
        with closing(full.connect_as_root()) as root, root.cursor() as cursor:
            cursor.execute("alter table segment_count tablespace = innodb_system")
        yield full
    finally:
        stack.down()


def test_on_a_full_disk_nothing_is_committed_until_there_is_room(full: FullWorld) -> None:
    """MySQL refuses the last rows: none of the rows stays, and the error says why."""
    days = [f"2017-07-{day:02} {hour:02}" for day in range(1, 16) for hour in range(24)]
    minutes = {f"{hour}:{n:02}:00": 1 for hour in days for n in range(60)}
    full.produce([LINE] * len(minutes), 0)
    batch = full.plan().batch
    assert batch is not None
    batch = claimed(full, batch)
    found = Result(
        totals={
            segment.range.partition: SegmentTotals(
                records=len(minutes),
                matched=len(minutes),
                unmatched=0,
                malformed=0,
                first_offset=0,
                last_offset=len(minutes) - 1,
            )
            for segment in batch.segments
        },
        contributions=[
            Contribution(partition=batch.segments[0].range.partition, log_time=m, log_count=n)
            for m, n in minutes.items()
        ],
        dead_letters=[],
        version="test",
        format_fingerprint="test",
    )
    full.fill()
    with pytest.raises(StatementError, match="is full") as caught:
        commit(full, batch, found)
    assert caught.value.next_step.startswith("free disk space")
    assert_untouched(full)
    assert full.rows("select * from segment_count") == []
    full.free()
    assert commit(full, batch, found)
    assert full.counts() == {minute[:-3]: 1 for minute in minutes}
    assert full.audit().holds
