"""Applying ``sql/`` to the database, by yoyo-migrations.

MySQL commits DDL at once, so an interrupted migration is half applied; every statement in ``sql/``
can therefore be run again. One migrator works at a time: the others wait for a named lock of MySQL,
which is released when its connection ends.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, ClassVar, Final

from yoyo import read_migrations
from yoyo.backends.core.mysql import MySQLBackend
from yoyo.connections import DatabaseURI
from yoyo.migrations import MigrationList

from tally.config.names import EXPANDS
from tally.config.servers import MySQLSettings
from tally.errors import AccessDeniedError, MySQLUnavailableError, SchemaError, StatementError
from tally.mysql.connection import connect
from tally.mysql.errors import translate
from tally.mysql.transactions import Database
from tally.packaged import packaged

LOCK_NAME: Final = "tally_migrate"
LOCK_PATIENCE_S: Final = 300
LONGEST_S: Final = 86_400
"""For one migration: that of a large ledger takes minutes."""
MIGRATIONS_TABLE: Final = "_yoyo_migration"
VERSION_TABLE: Final = "_yoyo_version"
# yoyo creates and drops a table of such a name to test whether the server can roll DDL back.
YOYO_PROBE: Final = "yoyo_tmp_"
YOYO_TABLES: Final = frozenset({MIGRATIONS_TABLE, VERSION_TABLE, "_yoyo_log", "yoyo_lock"})
_PROBE: Final = f"{YOYO_PROBE}rights"
_GRANT: Final = "grant what docs/runbook.md lists under Rights to the user that migrates"


class _Backend(MySQLBackend):  # type: ignore[misc]  # yoyo has no type hints
    """yoyo's MySQL backend on Tally's connections: same session settings, no password in a URI."""

    settings: ClassVar[MySQLSettings]

    def connect(self, dburi: Any) -> Any:  # noqa: ARG002 - yoyo's signature
        """A connection with plain cursors, as yoyo expects.

        A statement of a migration takes as long as the tables are large, and meanwhile yoyo's other
        connection is idle.
        """
        connection = connect(
            self.settings, cursorclass=self.driver.cursors.Cursor, read_timeout=LONGEST_S
        )
        with connection.cursor() as cursor:
            cursor.execute(f"set session wait_timeout = {LONGEST_S}")
        return connection


def pending(database: Database) -> list[str]:
    """Names of the migrations that the database does not have yet, in order."""
    try:
        with database.transaction(read_only=True) as tx:
            applied = tx.scalars(f"select migration_id from {MIGRATIONS_TABLE}")
    except SchemaError:
        applied = []
    return [migration.id for migration in _migrations() if migration.id not in applied]


def stopping(lacking: Collection[str]) -> list[str]:
    """The migrations among what is lacking after which older code refuses to write.

    None where all are lacking: no code has counted there.
    """
    names = [migration.id for migration in _migrations()]
    todo = [name for name in names if name in lacking]
    return [] if todo == names else [name for name in todo if not name.endswith(EXPANDS)]


def check_rights(database: Database) -> None:
    """Try what a migration does on tables that are dropped again.

    The caller holds the migrators' lock.

    Raises:
        AccessDeniedError: The user may not do it; the next migrator drops what is left.
        SchemaError: There is no such database.
    """
    clean = (
        f"drop view if exists {_PROBE}_view",
        f"drop table if exists {_PROBE}_refers, {_PROBE}",
    )
    ddl = (
        f"create table {_PROBE} (id int not null primary key)",
        f"alter table {_PROBE} add column number int, add key by_number (number)",
        f"create table {_PROBE}_refers (id int, foreign key (id) references {_PROBE} (id))",
        f"insert into {_PROBE} select id, number from {_PROBE}",
        f"update {_PROBE} set number = 1",
        f"delete from {_PROBE}",
        f"create or replace view {_PROBE}_view as select id from {_PROBE}",
    )
    with rights_explained(), database.transaction() as tx:
        for statement in clean:  # what a killed one has left
            tx.execute(statement)
        try:
            for statement in ddl:
                tx.execute(statement)
        finally:
            for statement in clean:
                tx.execute(statement)


def _migrations() -> MigrationList:
    return read_migrations(str(packaged("sql")))


@contextmanager
def one_at_a_time(database: Database) -> Iterator[None]:
    """Hold the migrators' lock; others wait for it.

    Raises:
        MySQLUnavailableError: Another migrator has held the lock for too long.
    """
    # The socket must wait longer than the server, or the server's answer is never read.
    patient = database.adjusted(statement_timeout_s=LOCK_PATIENCE_S + 60)
    with patient.transaction() as tx:
        # The lock's connection is idle while the migrations run on another one.
        tx.execute(f"set session wait_timeout = {LONGEST_S}")
        lock = (f"{LOCK_NAME}.{database.settings.database}"[:64], LOCK_PATIENCE_S)
        if tx.scalar("select get_lock(%s, %s)", lock) != 1:
            raise MySQLUnavailableError(
                f"another tally migrate has held the lock for {LOCK_PATIENCE_S} s",
                next_step="look for it with: show processlist",
            )
        yield


def apply(database: Database, *, expand_only: bool = False) -> list[str]:
    """Apply what is in ``sql/`` and not yet in the database; returns the names, in order.

    Args:
        database: Of the ledger.
        expand_only: Only those beside which older code keeps counting, up to the first other one.
    """
    settings = database.settings
    _forget_interrupted_start(database)
    # yoyo copies a backend by its class and its URI only, so the class carries the settings.
    kind = type("_BackendOfSettings", (_Backend,), {"settings": settings})
    # Not from a string: some database names would need escapes in a URI.
    uri = DatabaseURI("mysql", None, None, None, None, settings.database, {})
    backend = kind(uri, MIGRATIONS_TABLE)
    try:
        backend.init_database()
        # yoyo's own lock is a row, which stays when a migrator is killed; ours does not.
        backend.break_lock()
        todo = backend.to_apply(_migrations())
        if expand_only:
            todo = MigrationList(takewhile(lambda one: one.id.endswith(EXPANDS), todo))
        names = [migration.id for migration in todo]
        backend.apply_migrations(todo)
    except backend.DatabaseError as error:
        refused = translate(error, section=settings.section)
        resumes = "then tally migrate again: it resumes where it stopped"
        if isinstance(refused, AccessDeniedError):
            raise AccessDeniedError(refused.what, next_step=f"{_GRANT}, {resumes}") from error
        raise StatementError(
            f"a migration was refused: {refused.what}", next_step=f"correct the cause, {resumes}"
        ) from error
    finally:
        backend.connection.close()
    return names


def _forget_interrupted_start(database: Database) -> None:
    """Drop yoyo's own tables if it was killed while it created them; it cannot resume from there.

    It writes its version last, so without a version nothing is recorded in the others.

    Raises:
        AccessDeniedError: The user may not create or drop tables, which yoyo would hide.
    """
    with rights_explained():
        with database.transaction() as tx:
            tx.execute(f"create table if not exists {_PROBE} (id int)")
            tx.execute(f"drop view if exists {_PROBE}_view")
        with database.transaction() as tx:
            tables = tx.table_names()
            # Backwards: one that refers to another has a longer name.
            for table in sorted((n for n in tables if n.startswith(YOYO_PROBE)), reverse=True):
                tx.execute(f"drop table `{table}`")
            if not (half := tables & YOYO_TABLES):
                return
            if VERSION_TABLE in half and tx.row(f"select version from {VERSION_TABLE}") is not None:
                return
            tx.execute(f"drop table {', '.join(sorted(half))}")


@contextmanager
def rights_explained() -> Iterator[None]:
    """Say of a right that is lacking where those of a migration are listed."""
    try:
        yield
    except AccessDeniedError as error:
        raise AccessDeniedError(error.what, next_step=f"{_GRANT}, then tally migrate") from error
