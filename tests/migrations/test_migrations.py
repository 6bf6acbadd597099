"""``tally migrate`` on databases of these tests' own."""

import multiprocessing
import os
import re
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pymysql
import pytest

from tally.app.context import open_context
from tally.app.migrate import check_migrated, migrate
from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.errors import AccessDeniedError, MySQLUnavailableError, SchemaError
from tally.mysql.migrations import YOYO_PROBE, pending
from tally.mysql.transactions import Database
from tally.pipeline.plan import plan_batch
from tally_local.stack.stack import Stack
from tests.world import make_settings

pytestmark = pytest.mark.stack

SNAPSHOT = Path(__file__).parents[2] / "sql" / "schema" / "schema.sql"
UPDATE = "TALLY_TEST_UPDATE_SCHEMA"
APPLIED = [*(path.stem for path in sorted(SNAPSHOT.parents[1].glob("*.sql"))), "table first"]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])  # each process that is killed begins ready


@pytest.fixture
def empty(stack: Stack, tmp_path: Path) -> Iterator[Settings]:
    """Settings of an empty database."""
    name = f"t_{secrets.token_hex(5)}"
    settings = make_settings(stack, tmp_path / "tally.toml", {"first": {"topics": ["first"]}})
    with closing(root(stack, settings)) as connection, connection.cursor() as cursor:
        cursor.execute(f"create database {name} character set utf8mb4")
        cursor.execute(f"grant all on {name}.* to tally@'127.0.0.1'")
        yield load_settings(tmp_path / "tally.toml", overrides={"mysql": {"database": name}})
        cursor.execute(f"drop database {name}")


def root(stack: Stack, settings: Settings) -> "pymysql.Connection[pymysql.cursors.Cursor]":
    """A connection as MySQL's root."""
    return pymysql.connect(
        host=settings.mysql.host,
        port=settings.mysql.port,
        user="root",
        password=stack.credentials().mysql_root,
        autocommit=True,
    )


def database(settings: Settings) -> Database:
    """The database of these settings."""
    return Database(settings=settings.mysql)


def execute(settings: Settings, statement: str) -> None:
    """Run and commit a statement."""
    with database(settings).transaction() as tx:
        tx.execute(statement)


def table_names(settings: Settings) -> list[str]:
    """The names of all tables at the moment, those of the migration library included."""
    with database(settings).transaction(read_only=True) as tx:
        return sorted(str(next(iter(row.values()))) for row in tx.rows("show tables"))


def tables(settings: Settings) -> dict[str, str]:
    """Each table's definition as MySQL shows it."""
    names = table_names(settings)
    with database(settings).transaction(read_only=True) as tx:
        rows = {name: tx.row(f"show create table `{name}`") or {} for name in names}
    return {
        name: re.sub(r" AUTO_INCREMENT=\d+", "", row["Create Table"]) for name, row in rows.items()
    }


def test_four_at_once_migrate_once(empty: Settings) -> None:
    """Of several migrators one works, the others wait and find nothing to do.

    Nor does one that comes later; what a pipeline lacks alone is made alone.
    """
    barrier = Barrier(4)

    def work(_: int) -> list[str]:
        barrier.wait()
        return migrate(database(empty), empty)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(work, range(4)))
    assert sorted(done) == [[], [], [], APPLIED]
    before = tables(empty)
    assert migrate(database(empty), empty) == []
    check_migrated(database(empty), empty)
    execute(empty, "drop table first")  # as if it was configured after the last migration
    with pytest.raises(SchemaError, match="table first"):
        check_migrated(database(empty), empty)
    assert migrate(database(empty), empty) == ["table first"]
    assert tables(empty) == before


def test_the_snapshot_is_the_sum_of_the_migrations(empty: Settings) -> None:
    """sql/schema/schema.sql, which readers consult, equals what the migrations create.

    A result table has no labels of another: the first one may have some when the next is made.
    """
    migrate(database(empty), empty)
    made = tables(empty)
    text = "".join(
        f"{definition};\n\n"
        for name, definition in made.items()
        if "yoyo" not in name and name != "first"
    )
    if os.environ.get(UPDATE):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert SNAPSHOT.read_text(encoding="utf-8") == text, f"run it again with {UPDATE}=1"
    execute(empty, "alter table error_log add column service varchar(64) not null default ''")
    second = empty.model_copy(update={"pipelines": {"second": empty.pipelines["first"]}})
    assert migrate(database(empty), second) == ["table second"]
    assert tables(empty)["second"] == made["first"].replace("first", "second")


def test_a_migration_may_take_longer_than_a_statement_of_a_count(
    empty: Settings, stack: Stack
) -> None:
    """That of a large ledger does; meanwhile the connection that records it is idle."""
    migrate(database(empty), empty)
    columns = ("segment_id", "batch_id", "incarnation_id", "until_offset")
    segment = ("partition_id = 0", "from_offset = 0", *(f"{name} = 1" for name in columns))
    sleep = "set new.dead_letters = new.dead_letters + sleep(5)"
    with closing(root(stack, empty)) as connection, connection.cursor() as cursor:
        for statement in (
            f"use {empty.mysql.database}",
            "set foreign_key_checks = 0",
            f"insert into segment set {', '.join(segment)}",
            "insert into dead_letter_total values (1, 'no-time', 1, null)",
            f"create trigger slow before update on dead_letter_total for each row {sleep}",
            "delete from _yoyo_migration where migration_id like '0013%'",
        ):
            cursor.execute(statement)
    hurried = {"statement_timeout_s": 1, "lock_wait_timeout_s": 1}
    mysql = empty.mysql.model_copy(update=hurried)
    assert migrate(Database(settings=mysql), empty) == ["0013.large-pages"]
    with database(empty).transaction(read_only=True) as tx:
        assert tx.rows("select incarnation_id from dead_letter_total") == [{"incarnation_id": 1}]


def migrate_all(settings: Settings) -> None:
    """What a process does that is killed meanwhile."""
    migrate(database(settings), settings)


@pytest.mark.parametrize("after_tables", [1, 3, 6, 15])
def test_a_killed_migrator_is_taken_over(empty: Settings, after_tables: int) -> None:
    """After SIGKILL at any moment the next migrator finishes, with the same tables."""
    migrator = PROCESSES.Process(target=migrate_all, args=(empty,))
    migrator.start()
    while migrator.is_alive() and len(table_names(empty)) < after_tables:
        time.sleep(0.001)
    migrator.kill()
    migrator.join()
    migrate(database(empty), empty)
    assert pending(database(empty)) == []
    check_migrated(database(empty), empty)
    # The server may create a killed migrator's probe when the next one has looked for it already.
    assert len([name for name in table_names(empty) if not name.startswith(YOYO_PROBE)]) == 20


def test_a_ledger_that_is_not_migrated_says_so(empty: Settings) -> None:
    """Planning names what is missing and the command that repairs it."""
    with pytest.raises(SchemaError, match=r"0001\.ledger.*tally migrate"):
        check_migrated(database(empty), empty)
    with pytest.raises(SchemaError, match="tally migrate"):
        plan_batch(open_context(empty), "first")


def test_what_keeps_a_migrator_out_is_named(stack: Stack, tmp_path: Path) -> None:
    """A wrong password with user and address, and without it; a server that is down: retryable."""
    make_settings(stack, tmp_path / "tally.toml", {"first": {"topics": ["first"]}})
    wrong = load_settings(tmp_path / "tally.toml", overrides={"mysql": {"password": "hunter2"}})
    with pytest.raises(AccessDeniedError, match=r"tally@127\.0\.0\.1:\d+.*Access denied") as raised:
        migrate(database(wrong), wrong)
    assert "hunter2" not in str(raised.value)
    nowhere = load_settings(tmp_path / "tally.toml", overrides={"mysql": {"port": 9}})
    with pytest.raises(MySQLUnavailableError, match=r"127\.0\.0\.1:9"):
        migrate(database(nowhere), nowhere)
