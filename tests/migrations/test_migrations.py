"""``tally migrate`` on a database of the test's own."""

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

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


def test_the_snapshot_is_the_sum_of_the_migrations(empty: Settings) -> None:
    """sql/schema/schema.sql, which readers consult, equals what the migrations create."""
    migrate(database(empty), empty)
    made = "".join(
        f"{definition};\n\n"
        for name, definition in tables(empty).items()
        if "yoyo" not in name and name != "first"
    )
    if os.environ.get(UPDATE):
        SNAPSHOT.write_text(made, encoding="utf-8")
    assert SNAPSHOT.read_text(encoding="utf-8") == made, f"run it again with {UPDATE}=1"


def test_migrating_twice_changes_nothing(empty: Settings) -> None:
    """The first call lists what it applied, the second one applies nothing."""
    assert migrate(database(empty), empty) == APPLIED
    before = tables(empty)
    assert migrate(database(empty), empty) == []
    assert tables(empty) == before
    check_migrated(database(empty), empty)


def test_a_migration_may_take_longer_than_a_statement_of_a_count(
    empty: Settings, stack: Stack
) -> None:
    """That of a large ledger does; meanwhile the connection that records it is idle."""
    migrate(database(empty), empty)
    name = empty.mysql.database
    with closing(root(stack, empty)) as connection, connection.cursor() as cursor:
        cursor.execute(f"use {name}")
        cursor.execute("set foreign_key_checks = 0")
        cursor.execute(
            "insert into segment (segment_id, batch_id, incarnation_id, partition_id, from_offset,"
            " until_offset) values (1, 1, 1, 0, 0, 1)"
        )
        cursor.execute("insert into dead_letter_total values (1, 'no-time', 1, null)")
        cursor.execute(
            "create trigger slow before update on dead_letter_total for each row"
            " set new.dead_letters = new.dead_letters + sleep(8)"
        )
        cursor.execute("delete from _yoyo_migration where migration_id like '0013%'")
    hurried = {"statement_timeout_s": 1, "lock_wait_timeout_s": 1}
    mysql = empty.mysql.model_copy(update=hurried)
    assert migrate(Database(settings=mysql), empty) == ["0013.large-pages"]
    with database(empty).transaction(read_only=True) as tx:
        assert tx.rows("select incarnation_id from dead_letter_total") == [{"incarnation_id": 1}]


def test_a_result_table_has_no_labels_of_another(empty: Settings) -> None:
    """The first one may have some when the next is made."""
    migrate(database(empty), empty)
    with database(empty).transaction() as tx:
        tx.execute("alter table error_log add column service varchar(64) not null default ''")
    second = empty.model_copy(update={"pipelines": {"second": empty.pipelines["first"]}})
    assert migrate(database(empty), second) == ["table second"]
    made = tables(empty)
    assert made["second"] == made["first"].replace("first", "second")
    assert "service" not in made["second"]


def test_four_at_once_migrate_once(empty: Settings) -> None:
    """Of several migrators one works, the others wait and find nothing to do."""
    barrier = threading.Barrier(4)
    applied: list[list[str]] = []

    def work() -> None:
        barrier.wait()
        applied.append(migrate(database(empty), empty))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(applied) == [[], [], [], APPLIED]


@pytest.mark.parametrize("after_tables", [0, 1, 3, 6, 11, 15])
def test_a_killed_migrator_is_taken_over(
    empty: Settings, tmp_path: Path, after_tables: int
) -> None:
    """After SIGKILL at any moment the next migrator finishes, with the same tables."""
    with subprocess.Popen(
        [sys.executable, "-c", "from tally.cli import main; main()", "migrate"],
        env={
            **os.environ,
            "TALLY_CONFIG": str(tmp_path / "tally.toml"),
            "TALLY_MYSQL__DATABASE": empty.mysql.database,
        },
        stdout=subprocess.DEVNULL,
    ) as migrator:
        while migrator.poll() is None and len(table_names(empty)) < after_tables:
            time.sleep(0.001)
        migrator.send_signal(signal.SIGKILL)
    migrate(database(empty), empty)
    assert pending(database(empty)) == []
    check_migrated(database(empty), empty)
    # The server may create a killed migrator's probe when the next one has looked for it already.
    assert len([name for name in table_names(empty) if not name.startswith(YOYO_PROBE)]) == 20


def test_a_ledger_that_is_not_migrated_says_so(empty: Settings, stack: Stack) -> None:
    """Planning names what is missing and the command that repairs it."""
    with pytest.raises(SchemaError, match=r"0001\.ledger.*tally migrate"):
        check_migrated(database(empty), empty)
    with pytest.raises(SchemaError, match="tally migrate"):
        plan_batch(open_context(empty), "first")


def test_a_missing_result_table_says_so(empty: Settings) -> None:
    """A pipeline without a table, as it was configured after the last migration, is an error."""
    migrate(database(empty), empty)
    with database(empty).transaction() as tx:
        tx.execute("drop table first")
    with pytest.raises(SchemaError, match="table first"):
        check_migrated(database(empty), empty)
    assert migrate(database(empty), empty) == ["table first"]


def test_a_wrong_password_is_named_without_it(empty: Settings, tmp_path: Path) -> None:
    """The user and the address are in the message, the password is not."""
    wrong = load_settings(tmp_path / "tally.toml", overrides={"mysql": {"password": "hunter2"}})
    with pytest.raises(AccessDeniedError, match=r"tally@127\.0\.0\.1:\d+.*Access denied") as raised:
        migrate(database(wrong), wrong)
    assert "hunter2" not in str(raised.value)


def test_a_server_that_is_down_is_retryable(empty: Settings, tmp_path: Path) -> None:
    """The error is retryable and names the address."""
    nowhere = load_settings(tmp_path / "tally.toml", overrides={"mysql": {"port": 9}})
    with pytest.raises(MySQLUnavailableError, match=r"127\.0\.0\.1:9"):
        migrate(database(nowhere), nowhere)
