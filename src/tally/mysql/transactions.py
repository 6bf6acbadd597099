"""The one module that imports PyMySQL: connections, transactions and MySQL's errors as ours.

A connection belongs to one transaction at a time and never reconnects by itself: PyMySQL only does
so when ``ping`` is asked for it, and nothing here asks. A transaction that has lost its connection
is therefore gone as a whole.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pymysql
from pymysql.constants import CR, ER
from pymysql.cursors import DictCursor, SSDictCursor

from tally.config.servers import MySQLSettings
from tally.errors import (
    AccessDeniedError,
    CountOverflowError,
    MySQLUnavailableError,
    OutcomeUnknownError,
    SchemaError,
    StatementError,
    TallyError,
    TransactionRetryError,
)

Row = dict[str, Any]
Parameters = Sequence[Any]
T = TypeVar("T")

TRANSACTION_TRIES: Final = 5

# Silence that the server allows inside a transaction, in lock wait time-outs: a process that was
# stopped in the middle of its commit must not keep its locks for MySQL's default of eight hours.
_SILENCE_IN_LOCK_WAITS: Final = 3

# What MySQL takes for "all rows". Its word ``default`` is the server's own limit, which may hide
# rows from the audit.
_ALL_ROWS: Final = 2**64 - 1

# MySQL's error numbers that PyMySQL has no name for.
_ACCESS_DENIED_NO_PASSWORD: Final = 1698
_READ_ONLY_TRANSACTION: Final = 1792
_ROLLED_BACK_BY_GROUP: Final = 3101
_READ_ONLY_MODE: Final = 1836
_CONNECTION_KILLED: Final = 1927  # MariaDB
_CLIENT_TIMED_OUT: Final = 4031

# Which of our errors each of MySQL's is, and what to do next; all others are StatementErrors.
_TRANSLATIONS: Final[Sequence[tuple[frozenset[int], type[TallyError], str]]] = (
    (
        frozenset(
            {
                ER.ACCESS_DENIED_ERROR,
                ER.DBACCESS_DENIED_ERROR,
                ER.TABLEACCESS_DENIED_ERROR,
                ER.COLUMNACCESS_DENIED_ERROR,
                ER.SPECIFIC_ACCESS_DENIED_ERROR,
                _ACCESS_DENIED_NO_PASSWORD,
            }
        ),
        AccessDeniedError,
        "check mysql.user, its password and its grants",
    ),
    (
        frozenset({ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR}),
        SchemaError,
        "tally migrate",
    ),
    (
        frozenset({ER.BAD_DB_ERROR}),
        SchemaError,
        "create the database that mysql.database names, then: tally migrate",
    ),
    (
        frozenset(
            {
                ER.LOCK_DEADLOCK,
                ER.LOCK_WAIT_TIMEOUT,
                ER.TABLE_DEF_CHANGED,  # a table that was rebuilt after the snapshot was taken
                _ROLLED_BACK_BY_GROUP,
            }
        ),
        TransactionRetryError,
        "run it again",
    ),
    (
        frozenset({ER.OPTION_PREVENTS_STATEMENT, _READ_ONLY_TRANSACTION, _READ_ONLY_MODE}),
        MySQLUnavailableError,
        "wait for the fail-over to end, or point mysql.host at the writable server",
    ),
    (
        frozenset({ER.DISK_FULL, ER.RECORD_FILE_FULL, ER.ERROR_ON_WRITE}),
        StatementError,
        "free disk space on the MySQL server, then run it again",
    ),
    (
        # What else has a column of numbers is kept in range by the configuration.
        frozenset({ER.WARN_DATA_OUT_OF_RANGE}),
        CountOverflowError,
        "give the result table a wider column: docs/runbook.md, count-overflow",
    ),
    (
        frozenset({ER.NET_PACKET_TOO_LARGE}),
        StatementError,
        "raise max_allowed_packet on the MySQL server, or lower dead_letter_max_bytes",
    ),
    (
        frozenset(
            {
                CR.CR_CONNECTION_ERROR,
                CR.CR_CONN_HOST_ERROR,
                CR.CR_UNKNOWN_HOST,
                CR.CR_SERVER_GONE_ERROR,
                CR.CR_SERVER_LOST,
                CR.CR_SERVER_LOST_EXTENDED,
                ER.CON_COUNT_ERROR,
                ER.HOST_IS_BLOCKED,
                ER.SERVER_SHUTDOWN,
                ER.TOO_MANY_USER_CONNECTIONS,
                ER.ABORTING_CONNECTION,
                ER.NET_READ_ERROR,
                ER.NET_READ_INTERRUPTED,
                ER.NET_ERROR_ON_WRITE,
                ER.NET_WRITE_INTERRUPTED,
                ER.QUERY_INTERRUPTED,
                ER.ERROR_DURING_COMMIT,
                _CONNECTION_KILLED,
                _CLIENT_TIMED_OUT,
            }
        ),
        MySQLUnavailableError,
        "tally doctor",
    ),
)


class Transaction:
    """Statements of one open transaction."""

    def __init__(self, connection: "pymysql.Connection[DictCursor]") -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Parameters = ()) -> int:
        """Run a statement; returns how many rows it *changed* (not matched)."""
        with _our_errors(), self._connection.cursor() as cursor:
            return cursor.execute(statement, parameters)

    def insert(self, statement: str, parameters: Parameters) -> int:
        """Insert one row; returns its auto-increment key."""
        with _our_errors(), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return int(cursor.lastrowid)

    def insert_many(self, statement: str, rows: Iterable[Parameters]) -> int:
        """Insert rows, several in a statement; returns how many were inserted."""
        with _our_errors(), self._connection.cursor() as cursor:
            return cursor.executemany(statement, rows) or 0

    def rows(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        with _our_errors(), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def row(self, statement: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query, None if there is none."""
        with _our_errors(), self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchone()

    def stream(self, statement: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Rows of a query as they arrive, in bounded memory; exhaust it before the next call."""
        with _our_errors(), self._connection.cursor(SSDictCursor) as cursor:
            cursor.execute(statement, parameters)
            yield from cursor.fetchall_unbuffered()


class CommitUnansweredError(OutcomeUnknownError):
    """The connection broke at COMMIT: whether it was applied is not known from here.

    Who commits a batch asks the ledger; what only a person decides, that person looks up.
    """


@contextmanager
def transaction(
    settings: MySQLSettings,
    *,
    isolation: str = "read committed",
    read_only: bool = False,
    keep: bool = True,
) -> Iterator[Transaction]:
    """One transaction on a connection of its own: committed at the end, rolled back on any error.

    Args:
        settings: Where the database is.
        isolation: MySQL's isolation level; ``repeatable read`` gives one consistent snapshot.
        read_only: Whether statements that change something are refused.
        keep: Whether it is committed; a dry run, and a question that takes locks, is rolled back.

    Raises:
        CommitUnansweredError: The answer to COMMIT was lost; the caller must ask the ledger.
        TransactionRetryError: Rolled back by MySQL; may be run again.
        MySQLUnavailableError: The server could not be reached or the connection broke before
            COMMIT; nothing was written.
        OperatorError: The server refused the user, the schema or a statement.
    """
    connection = _connect(settings)
    try:
        with _our_errors(), connection.cursor() as cursor:
            cursor.execute(f"set session transaction isolation level {isolation}")
            snapshot = "with consistent snapshot, read only" if read_only else "read write"
            cursor.execute(f"start transaction {snapshot}")
        try:
            yield Transaction(connection)
        except BaseException:
            _roll_back(connection)
            raise
        if keep and not read_only:
            _commit(connection)
        else:
            _roll_back(connection)
    finally:
        _close(connection)


def run_transaction(
    settings: MySQLSettings, work: Callable[[Transaction], T], *, dry_run: bool = False
) -> T:
    """Run ``work`` in a transaction, again from its start when MySQL rolled it back.

    Args:
        settings: Where the database is.
        work: Must have no effects outside the transaction.
        dry_run: Whether all of it is undone at the end: what ``work`` returns or raises shows what
            would happen.

    Raises:
        TransactionRetryError: Rolled back five times in a row.
    """
    for attempt in range(1, TRANSACTION_TRIES + 1):
        try:
            with transaction(settings, keep=not dry_run) as tx:
                return work(tx)
        except TransactionRetryError:
            if attempt == TRANSACTION_TRIES:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("unreachable: the last try returns or raises")


def server_facts(settings: MySQLSettings) -> Row:
    """What Tally depends on, for ``tally doctor``.

    ``version``, ``innodb`` (usable or not), and by variable name what the server says in
    ``session``, a session of Tally's own, and in ``server``, its default.
    """
    with transaction(settings) as tx:
        version = tx.row("select version() as version") or {}
        engine = tx.row("select support from information_schema.engines where engine = 'InnoDB'")
        session, server = (
            {
                # MariaDB before 11.1 knows the isolation level by its old name only.
                row["Variable_name"].replace("tx_isolation", "transaction_isolation"): row["Value"]
                for row in tx.rows(f"show {scope} variables")
            }
            for scope in ("session", "global")
        )
    usable = engine is not None and engine["support"] in {"YES", "DEFAULT"}
    return {**version, "innodb": usable, "session": session, "server": server}


def connect_raw(settings: MySQLSettings, **options: Any) -> "pymysql.Connection[Any]":
    """A plain connection with Tally's session settings, for the migration library."""
    return _connect(settings, **options)


def _connect(settings: MySQLSettings, **options: Any) -> "pymysql.Connection[Any]":
    silence_s = settings.lock_wait_timeout_s * _SILENCE_IN_LOCK_WAITS
    arguments: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "user": settings.user,
        "password": settings.password.get_secret_value(),
        "database": settings.database,
        "charset": "utf8mb4",
        "connect_timeout": settings.connect_timeout_s,
        "read_timeout": settings.statement_timeout_s,
        "write_timeout": settings.statement_timeout_s,
        "autocommit": False,
        "cursorclass": DictCursor,
        **_tls_options(settings),
        "sql_mode": "TRADITIONAL",
        "init_command": (
            "set session time_zone = '+00:00',"
            f" innodb_lock_wait_timeout = {settings.lock_wait_timeout_s},"
            f" lock_wait_timeout = {settings.lock_wait_timeout_s},"  # of metadata: a year otherwise
            f" sql_select_limit = {_ALL_ROWS},"
            f" wait_timeout = {silence_s}"
        ),
        **options,
    }
    with _our_errors(where=f"{settings.user}@{settings.host}:{settings.port}"):
        return pymysql.connect(**arguments)


def _tls_options(settings: MySQLSettings) -> dict[str, Any]:
    if settings.tls == "verified":
        # A context of our own: PyMySQL's checks no host name when it is given no authority.
        return {"ssl": ssl.create_default_context(cafile=settings.ssl_ca)}
    # Without any option PyMySQL encrypts when the server offers it.
    return {"ssl_disabled": True} if settings.tls == "disabled" else {}


def _commit(connection: "pymysql.Connection[Any]") -> None:
    try:
        connection.commit()
    except (pymysql.err.Error, OSError) as error:
        ours = _translate(error)
        if isinstance(ours, MySQLUnavailableError):
            raise CommitUnansweredError(
                f"the connection broke at COMMIT, so it may have been applied or not: {ours.what}",
                next_step="see which: tally status for a plan or an adopted topic, tally losses "
                "list for an accepted loss, tally show BATCH for an abandoned batch, tally replays "
                "for a replay, to be resumed; the same command again counts nothing twice",
            ) from error
        raise ours from error


def _roll_back(connection: "pymysql.Connection[Any]") -> None:
    # The first error is the one that counts; a connection that cannot roll back is closed, and the
    # server rolls back for it.
    try:
        connection.rollback()
    except (pymysql.err.Error, OSError):
        return


def _close(connection: "pymysql.Connection[Any]") -> None:
    try:
        connection.close()
    except (pymysql.err.Error, OSError):
        return


@contextmanager
def _our_errors(where: str = "") -> Iterator[None]:
    try:
        yield
    except (pymysql.err.Error, OSError) as error:
        raise _translate(error, where) from error


def _translate(error: Exception, where: str = "") -> TallyError:
    """MySQL's error as one of ours, with the driver's own words."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = f"MySQL{f' ({where})' if where else ''}: {_words(error)}"
    for numbers, ours, next_step in _TRANSLATIONS:
        if number in numbers:
            return ours(text, next_step=next_step)
    # Without a number the driver has lost track of the conversation; so has whoever asks it.
    if not number or isinstance(error, OSError | pymysql.err.InterfaceError):
        return MySQLUnavailableError(text, next_step="tally doctor")
    return StatementError(text, next_step="see docs/runbook.md, mysql-refused")


def _words(error: Exception) -> str:
    if len(error.args) > 1:
        return f"{error.args[1]} ({error.args[0]})"
    return str(error) or type(error).__name__
