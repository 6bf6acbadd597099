"""Transactions: statements that take effect together, or not at all."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

import pymysql
from pymysql.cursors import DictCursor, SSDictCursor

from tally.clock import Clock
from tally.config.servers import MySQLSettings
from tally.errors import MySQLUnavailableError, OutcomeUnknownError, TransactionRetryError
from tally.groups import in_groups
from tally.mysql.connection import Connection, connect, rows_for
from tally.mysql.errors import CommitUnansweredError, our_errors, translate

Row = dict[str, Any]
Parameters = Sequence[Any]
T = TypeVar("T")

TRANSACTION_TRIES: Final = 5
BYTES_PER_INSERT: Final = 1_000_000
"""Of a statement that inserts rows, unless one row has more: round trips are cheap, and the server
takes it."""
_SHORT_WAIT_S: Final = 2
_FREE_WITHIN_S: Final = 120


class Transaction:
    """Statements of one open transaction."""

    def __init__(self, connection: Connection, database: "Database") -> None:
        self._connection = connection
        self._database = database
        self._now: datetime | None = None

    def now(self) -> datetime:
        """The time for a ``datetime`` column: UTC, without its zone; the same at each call."""
        if self._now is None:
            self._now = self._database.clock.now().replace(tzinfo=None)
        return self._now

    def execute(self, statement: str, parameters: Parameters = ()) -> int:
        """Run a statement; returns how many rows it *changed*, not how many it matched."""
        with self._executed(statement, parameters) as cursor:
            return int(cursor.rowcount)

    def insert_row(self, table: str, **values: Any) -> int:
        """Insert one row of values by column; returns its auto-increment key."""
        marks = ", ".join(["%s"] * len(values))
        statement = f"insert into {table} ({', '.join(values)}) values ({marks})"
        with self._executed(statement, tuple(values.values())) as cursor:
            return int(cursor.lastrowid)

    def insert_many(self, statement: str, rows: Iterable[Parameters]) -> int:
        """Insert rows, some in each statement; returns how many were inserted.

        While the server works on some, the next ones are written.

        Args:
            statement: With one ``%s``, behind ``values``, for all rows.
            rows: Of as many values each.
        """
        written = rows_for(self._connection)(rows)
        groups = in_groups(written, _utf8_bytes, BYTES_PER_INSERT)
        statements = (statement % ",".join(group) for group in groups)
        one, inserted = next(statements, None), 0
        with ThreadPoolExecutor(1) as executor:  # nobody else uses the connection meanwhile
            while one is not None:
                sent = executor.submit(self._insert, one)
                one = next(statements, None)
                inserted += sent.result()
        return inserted

    def _insert(self, statement: str) -> int:
        with self._cursor(statement) as cursor:
            return int(cursor.execute(statement))

    def rows(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """All rows of a query."""
        with self._executed(statement, parameters) as cursor:
            return list(cursor.fetchall())

    def row(self, statement: str, parameters: Parameters = ()) -> Row | None:
        """The first row of a query; None without one."""
        with self._executed(statement, parameters) as cursor:
            found: Row | None = cursor.fetchone()
            return found

    def one(self, statement: str, parameters: Parameters = ()) -> Row:
        """The row of a query that always has one, such as a sum."""
        (row,) = self.rows(statement, parameters)
        return row

    def scalar(self, statement: str, parameters: Parameters = ()) -> Any:
        """The first column of a query's first row; None without a row."""
        row = self.row(statement, parameters)
        return None if row is None else next(iter(row.values()))

    def exists(self, statement: str, parameters: Parameters = ()) -> bool:
        """Whether a query has a row."""
        return self.row(statement, parameters) is not None

    def scalars(self, statement: str, parameters: Parameters = ()) -> list[Any]:
        """The first column of each row."""
        return [next(iter(row.values())) for row in self.rows(statement, parameters)]

    def pairs(self, statement: str, parameters: Parameters = ()) -> dict[Any, Any]:
        """The second of two columns, by the first one."""
        return dict(tuple(row.values()) for row in self.rows(statement, parameters))

    def stream(self, statement: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Rows of a query as they arrive, in bounded memory; read all before the next call."""
        with self._executed(statement, parameters, SSDictCursor) as cursor:
            yield from cursor.fetchall_unbuffered()

    def table_names(self, among: Iterable[str] = ()) -> set[str]:
        """Names of the tables in the database that the user has a right on.

        Args:
            among: Only of these; of all when empty.
        """
        statement = (
            "select table_name from information_schema.tables where table_schema = database()"
        )
        wanted = sorted(among)
        of = " and table_name in %s" if wanted else ""
        return set(self.scalars(statement + of, (wanted,) if wanted else ()))

    def keep_streams_open(self, seconds: int) -> None:
        """Let the server wait so long with rows of :meth:`stream` that are not taken yet."""
        self.execute(f"set session net_write_timeout = {seconds:d}")

    @contextmanager
    def _executed(
        self, statement: str, parameters: Parameters, kind: type[Any] = DictCursor
    ) -> Iterator[Any]:
        with self._cursor(statement, kind) as cursor:
            cursor.execute(statement, parameters)
            yield cursor

    @contextmanager
    def _cursor(self, statement: str, kind: type[Any] = DictCursor) -> Iterator[Any]:
        with our_errors(section=self._database.settings.section):
            if self._database.listen is not None:
                self._database.listen(statement)
            with self._connection.cursor(kind) as cursor:
                yield cursor


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """One database. Each transaction has a connection of its own, a new one or one of a pool."""

    settings: MySQLSettings
    """Address and credentials."""
    clock: Clock = field(default_factory=Clock)
    """For the times that are written, and for the pause before a transaction is run again."""
    open: Callable[[MySQLSettings], Connection] = connect
    """Opens a connection."""
    close: Callable[[Connection], None] = pymysql.Connection.close
    """Closes a connection, also a broken one."""
    listen: Callable[[str], None] | None = None
    """Called with each statement before it is sent."""

    def adjusted(self, **settings: Any) -> "Database":
        """The same database with other settings of the connection."""
        return dataclasses.replace(self, settings=self.settings.model_copy(update=settings))

    @contextmanager
    def transaction(
        self,
        *,
        isolation: str = "read committed",
        read_only: bool = False,
        keep: bool = True,
    ) -> Iterator[Transaction]:
        """One transaction: committed at the end, rolled back on any error.

        Args:
            isolation: MySQL's isolation level; ``repeatable read`` gives one consistent snapshot.
            read_only: Whether statements that change something are refused.
            keep: Whether it is committed; a dry run, or a query that takes locks, is rolled back.

        Raises:
            CommitUnansweredError: The answer to COMMIT was lost; the caller must ask the ledger.
            TransactionRetryError: Rolled back by MySQL; may be run again.
            MySQLUnavailableError: The server could not be reached or the connection broke before
                COMMIT; nothing was written.
            OperatorError: The server refused the user, the schema or a statement.
        """
        connection = self.open(self.settings)
        try:
            with our_errors(section=self.settings.section), connection.cursor() as cursor:
                cursor.execute(f"set session transaction isolation level {isolation}")
                snapshot = "with consistent snapshot, read only" if read_only else "read write"
                cursor.execute(f"start transaction {snapshot}")
            try:
                yield Transaction(connection, self)
            except BaseException:
                _roll_back(connection)
                raise
            if keep and not read_only:
                _commit(connection)
            else:
                _roll_back(connection)
        finally:
            with suppress(pymysql.err.Error, OSError):  # it is broken already
                self.close(connection)

    def run(self, work: Callable[[Transaction], T], *, dry_run: bool = False) -> T:
        """Run ``work`` in a transaction, again from its start when MySQL rolled it back.

        Args:
            work: Must have no effects outside the transaction.
            dry_run: Whether the transaction is rolled back at the end; ``work`` returns or raises
                as it would otherwise.

        Raises:
            TransactionRetryError: MySQL rolled it back :data:`TRANSACTION_TRIES` times in a row.
        """
        for attempt in range(1, TRANSACTION_TRIES + 1):
            try:
                with self.transaction(keep=not dry_run) as tx:
                    return work(tx)
            except TransactionRetryError:
                if attempt == TRANSACTION_TRIES:
                    raise
                self.clock.sleep(0.05 * 2**attempt)
        raise AssertionError("unreachable: the last try returns or raises")

    def run_answered(
        self,
        work: Callable[[Transaction], T],
        ask: Callable[[Transaction], T | None] | None = None,
        *,
        what: str,
        next_step: str = "run it again once MySQL answers; it is safe",
        within_s: float = 0.0,
        pause_s: float = 1.0,
    ) -> T:
        """Run ``work`` as :meth:`run` does, until it is known whether it was committed.

        Args:
            work: As for :meth:`run`.
            ask: Called when the answer to COMMIT is lost, in a transaction that is rolled back.
                Returns what ``work`` has returned where it was applied, and None where it was not:
                then ``work`` is run again. It locks what ``work`` locks first: a server that still
                works on the COMMIT holds that lock, so the answer is final. Without it, ``work``
                may be done twice.
            what: What is committed, for the messages: ``batch 7``.
            next_step: What to do when the outcome stays unknown.
            within_s: Seconds for which an unreachable server is asked.
            pause_s: Seconds between two questions.

        Raises:
            MySQLUnavailableError: The connection broke at every COMMIT, and none was applied.
            OutcomeUnknownError: The server could not be asked in time.
        """
        for _ in range(TRANSACTION_TRIES):
            try:
                return self.run(work)
            except CommitUnansweredError as error:
                unanswered = error
                if ask is None:
                    continue
                try:
                    outcome = self._asked(ask, within_s, pause_s)
                except (MySQLUnavailableError, TransactionRetryError) as silent:
                    raise OutcomeUnknownError(
                        f"{what}: the answer to COMMIT was lost, and MySQL does not say whether it "
                        f"was applied: {silent.what}",
                        next_step=next_step,
                    ) from silent
                if outcome is not None:
                    return outcome
        raise MySQLUnavailableError(
            f"{what}: the connection broke at COMMIT {TRANSACTION_TRIES} times in a row, and "
            "nothing was committed",
            next_step="run it again once MySQL keeps its connections; it is safe",
        ) from unanswered

    def _asked(
        self, ask: Callable[[Transaction], T | None], within_s: float, pause_s: float
    ) -> T | None:
        deadline = self.clock.monotonic() + within_s
        while True:
            try:
                with self.transaction(keep=False) as tx:
                    return ask(tx)
            except (MySQLUnavailableError, TransactionRetryError):
                if self.clock.monotonic() > deadline:
                    raise
                self.clock.sleep(pause_s)

    def run_between_readers(self, work: Callable[[Transaction], None]) -> None:
        """Run DDL that can be run again, with short waits for tables that others read.

        A session that waits for the metadata of a table holds up all sessions after it.

        Raises:
            TransactionRetryError: A table was not free for a moment in two minutes.
        """
        impatient = self.adjusted(lock_wait_timeout_s=_SHORT_WAIT_S)
        deadline = self.clock.monotonic() + _FREE_WITHIN_S
        while True:
            try:
                with impatient.transaction() as tx:
                    return work(tx)
            except TransactionRetryError:
                if self.clock.monotonic() > deadline:
                    raise
                self.clock.sleep(_SHORT_WAIT_S)


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _commit(connection: Connection) -> None:
    try:
        connection.commit()
    except (pymysql.err.Error, OSError) as error:
        ours = translate(error)
        if isinstance(ours, MySQLUnavailableError):
            raise CommitUnansweredError(
                f"the connection broke at COMMIT, so it may have been applied or not: {ours.what}",
                next_step="see which: tally status for a plan or an adopted topic, tally losses "
                "list for an accepted loss, tally show BATCH for an abandoned batch, tally replays "
                "for a replay, to be resumed; the same command again counts nothing twice",
            ) from error
        raise ours from error


def _roll_back(connection: Connection) -> None:
    # The caller sees the first error. If the rollback fails too, the connection is closed and the
    # server rolls back.
    with suppress(pymysql.err.Error, OSError):
        connection.rollback()
