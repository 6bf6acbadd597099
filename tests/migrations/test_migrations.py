"""``tally migrate`` on databases of these tests' own."""

import multiprocessing
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.errors import ConfigError
from tally.mysql.migrations import YOYO_PROBE, pending
from tally.mysql.transactions import Database
from tally.set_up.migrate import migrate, missing
from tests.servers import PROJECT
from tests.world import World

pytestmark = pytest.mark.stack

SNAPSHOT = PROJECT / "sql" / "schema" / "schema.sql"
UPDATE = "TALLY_TEST_UPDATE_SCHEMA"
MIGRATIONS = [path.stem for path in sorted(SNAPSHOT.parents[1].glob("*.sql"))]

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])  # each process that is killed begins ready


def table_names(world: World) -> list[str]:
    """The names of all tables at the moment, those of the migration library included."""
    rows = world.rows("show full tables where table_type = 'BASE TABLE'")
    return sorted(str(next(iter(row.values()))) for row in rows)


def tables(world: World) -> dict[str, str]:
    shown = {n: world.rows(f"show create table `{n}`")[0] for n in table_names(world)}
    return {n: re.sub(r" AUTO_INCREMENT=\d+", "", row["Create Table"]) for n, row in shown.items()}


def test_four_at_once_migrate_once(empty: World) -> None:
    """Of several migrators one works, the others wait and find nothing to do."""
    barrier, table = Barrier(4), f"table {empty.name}"
    view = f"view {empty.name}_minutes"
    assert {*MIGRATIONS, table, view} <= {*missing(empty.database, empty.settings)}

    def work(_: int) -> list[str]:
        barrier.wait()
        return migrate(empty.database, empty.settings)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(work, range(4)))
    assert sorted(done) == [[], [], [], [*MIGRATIONS, table, view]]
    before = tables(empty)
    assert migrate(empty.database, empty.settings) == []
    assert missing(empty.database, empty.settings) == []
    empty.execute(f"drop table {empty.name}")  # as if it was configured after the last migration
    assert missing(empty.database, empty.settings) == [table]
    assert migrate(empty.database, empty.settings) == [table]
    assert tables(empty) == before


def test_the_snapshot_is_the_sum_of_the_migrations(empty: World) -> None:
    """sql/schema/schema.sql, which readers consult, equals what the migrations create."""
    migrate(empty.database, empty.settings)
    made = tables(empty)
    text = "".join(
        f"{definition};\n\n"
        for name, definition in made.items()
        if "yoyo" not in name and name != empty.name
    )
    if os.environ.get(UPDATE):
        SNAPSHOT.write_text(text, encoding="utf-8")
    assert SNAPSHOT.read_text(encoding="utf-8") == text, f"run it again with {UPDATE}=1"
    empty.execute("alter table error_log add column service varchar(64) not null default ''")
    pipelines = {"second": Pipeline.named("second", empty.pipeline)}
    second = empty.settings.model_copy(update={"pipelines": pipelines})
    assert migrate(empty.database, second) == ["table second", "view second_minutes"]
    assert tables(empty)["second"] == made[empty.name].replace(empty.name, "second")


def test_a_pipeline_that_is_refused_holds_up_no_other(empty: World) -> None:
    """As one that is younger than the ledger's dump, and whose table was not dropped with it."""
    migrate(empty.database, empty.settings)
    empty.execute(f"insert into `{empty.name}` values ('2017-07-30 14:09:00', 1)")
    pipelines = {n: Pipeline.named(n, empty.pipeline) for n in (empty.name, "zebra", "ant")}
    settings = empty.settings.model_copy(update={"pipelines": pipelines})
    with pytest.raises(ConfigError, match=f"{empty.name}.*rows that the ledger knows nothing of"):
        migrate(empty.database, settings)
    assert {"ant", "zebra"} <= tables(empty).keys()
    empty.execute(f"rename table `{empty.name}` to kept_aside")
    assert migrate(empty.database, settings) == [f"table {empty.name}"]


def test_a_migration_may_take_longer_than_a_statement_of_a_count(empty: World) -> None:
    """That of a large ledger does; meanwhile the connection that records it is idle."""
    migrate(empty.database, empty.settings)
    columns = ("segment_id", "batch_id", "incarnation_id", "until_offset")
    segment = ("partition_id = 0", "from_offset = 0", *(f"{name} = 1" for name in columns))
    sleep = "set new.dead_letters = new.dead_letters + sleep(5)"
    empty.as_root(
        f"use {empty.name}",
        "set foreign_key_checks = 0",
        f"insert into segment set {', '.join(segment)}",
        "insert into dead_letter_total values (1, 'no-time', 1, null)",
        f"create trigger slow before update on dead_letter_total for each row {sleep}",
        "delete from _yoyo_migration where migration_id like '0013%'",
        "commit",
    )
    hurried = {"statement_timeout_s": 1, "lock_wait_timeout_s": 1}
    mysql = empty.settings.mysql.model_copy(update=hurried)
    assert migrate(Database(settings=mysql), empty.settings) == ["0013.large-pages"]
    assert empty.rows("select incarnation_id from dead_letter_total") == [{"incarnation_id": 1}]


def migrate_all(settings: Settings) -> None:
    migrate(Database(settings=settings.mysql), settings)


@pytest.mark.parametrize("after_tables", [1, 3, 6, 15])
def test_a_killed_migrator_is_taken_over(empty: Settings, after_tables: int) -> None:
    migrator = PROCESSES.Process(target=migrate_all, args=(empty.settings,))
    migrator.start()
    while migrator.is_alive() and len(table_names(empty)) < after_tables:
        time.sleep(0.001)
    migrator.kill()
    migrator.join()
    migrate(empty.database, empty.settings)
    assert pending(empty.database) == []
    assert missing(empty.database, empty.settings) == []
    # The server may create a killed migrator's probe when the next one has looked for it already.
    assert len([name for name in table_names(empty) if not name.startswith(YOYO_PROBE)]) == 25
