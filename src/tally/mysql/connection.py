"""Connections to MySQL: which servers are supported, opening a connection, and a pool of them.

A connection belongs to one transaction at a time and never reconnects by itself: PyMySQL does so
only in a ``ping`` that asks for it, and none does. A transaction that has lost its connection is
therefore rolled back as a whole.
"""

import re
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final, TypeAlias

import pymysql
from pymysql.constants import SERVER_STATUS
from pymysql.converters import conversions, escape_string
from pymysql.cursors import DictCursor

from tally.config.certificates import showing, trusting
from tally.config.servers import MySQLSettings, key_of
from tally.groups import in_groups
from tally.mysql.errors import our_errors

Connection: TypeAlias = "pymysql.Connection[Any]"  # generic for the type checker alone

OLDEST_MYSQL: Final = (8, 0, 17)
"""The first MySQL with the collation ``utf8mb4_0900_bin``, which distinguishes labels' values. It
enforces CHECK constraints, which the ledger relies on, since 8.0.16."""

OLDEST_MARIADB: Final = (10, 6, 0)
"""The first MariaDB whose DDL is atomic, so that a migration can be run again after a crash of the
server. It enforces CHECK constraints since 10.2."""

MYSQL_NEEDED: Final = f"MySQL {'.'.join(map(str, OLDEST_MYSQL))} or newer"
SERVER_NEEDED: Final = (
    f"{MYSQL_NEEDED}, or MariaDB {'.'.join(map(str, OLDEST_MARIADB[:2]))} or newer"
)
# How long a connection may be idle inside a transaction, as a multiple of the lock wait timeout. A
# process that was stopped in its commit must not keep locks for MySQL's default of eight hours.
_IDLE_IN_LOCK_WAITS: Final = 3

# MySQL's value for "all rows". ``default`` would be the server's own limit, which may hide rows
# from the audit.
_ALL_ROWS: Final = 2**64 - 1

IDLE_MAX_S: Final = 15.0
"""Seconds after which an idle connection of a pool is not used again."""
_IDLE_CONNECTIONS_MAX: Final = 4

# That are written at once: enough to save work, and little memory.
_ROWS_AT_ONCE: Final = 64
_BYTES_AT_ONCE: Final = 1024 * 1024


def is_mariadb(version: str) -> bool:
    """Whether a server is MariaDB; ``version`` is what ``select version()`` returns."""
    return "mariadb" in version.lower()


def is_supported(version: str) -> bool:
    """Whether a server of this version is supported.

    Args:
        version: As ``select version()`` returns it: ``8.0.36-0ubuntu1``, ``11.4.5-MariaDB-log``.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    oldest = OLDEST_MARIADB if is_mariadb(version) else OLDEST_MYSQL
    return found is not None and tuple(map(int, found.groups())) >= oldest


def connect(settings: MySQLSettings, **options: Any) -> Connection:
    """A connection with Tally's session settings.

    Args:
        settings: Where the database is.
        options: Arguments of PyMySQL that override these.
    """
    idle_s = settings.lock_wait_timeout_s * _IDLE_IN_LOCK_WAITS
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
        "conv": {**conversions, datetime: _in_utc},
        **_tls_options(settings),
        "sql_mode": "TRADITIONAL",
        "init_command": (
            "set session time_zone = '+00:00',"
            f" innodb_lock_wait_timeout = {settings.lock_wait_timeout_s},"
            f" lock_wait_timeout = {settings.lock_wait_timeout_s},"  # of metadata
            f" sql_select_limit = {_ALL_ROWS},"
            f" wait_timeout = {idle_s}"
        ),
        **options,
    }
    where = f"{settings.user}@{settings.host}:{settings.port}"
    with our_errors(where, settings.section):
        return _Connection(**arguments)


def _in_utc(moment: datetime, mapping: Any = None) -> str:  # noqa: ARG001 - as PyMySQL calls it
    """A time for a ``datetime`` column: one with a zone in UTC, another as it is."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return f"'{moment.isoformat(' ')}'"


def rows_for(connection: Connection) -> Callable[[Iterable[Sequence[Any]]], Iterator[str]]:
    """What makes rows of values rows as a statement has them: ``(1,'a',X'00',NULL)``.

    PyMySQL asks what each value is in many ways, which is most of what a large insert takes. Here a
    column of many rows is asked at once.
    """
    escape = partial(connection.escape, mapping=connection.encoders)
    status: int = connection.server_status  # type: ignore[attr-defined]
    no_backslash = status & SERVER_STATUS.SERVER_STATUS_NO_BACKSLASH_ESCAPES
    quick: dict[type, Callable[[Any], str]] = {
        int: int.__repr__,
        bytes: lambda value: f"X'{value.hex()}'",
        type(None): lambda _: "NULL",
        datetime: _in_utc,
        str: escape if no_backslash else lambda value: f"'{escape_string(value)}'",
    }

    def column(values: Sequence[Any]) -> Iterable[str]:
        kinds = set(map(type, values))
        if len(kinds) > 1:
            return (quick.get(type(value), escape)(value) for value in values)
        (kind,) = kinds
        write = quick.get(kind, escape)
        if kind in (str, datetime):  # often the same ones
            written = {value: write(value) for value in set(values)}
            return map(written.__getitem__, values)
        return map(write, values)

    def rows(of: Iterable[Sequence[Any]]) -> Iterator[str]:
        for some in in_groups(of, _value_bytes, _BYTES_AT_ONCE, count=_ROWS_AT_ONCE):
            columns = map(column, zip(*some, strict=True))
            yield from map("({})".format, map(",".join, zip(*columns, strict=True)))

    return rows


def _value_bytes(row: Sequence[Any]) -> int:
    return sum([len(value) for value in row if type(value) in (bytes, bytearray)])


def connect_to_read(settings: MySQLSettings) -> Connection:
    """A connection on which the server ends each query after ``statement_timeout_s``."""
    seconds = settings.statement_timeout_s
    # The server's answer that it has ended a query must still arrive.
    connection = connect(settings, read_timeout=seconds * 2)
    limit = f"max_execution_time = {seconds * 1000}"
    if is_mariadb(str(connection.get_server_info())):  # type: ignore[no-untyped-call]
        limit = f"max_statement_time = {seconds}"
    with our_errors(section=settings.section), connection.cursor() as cursor:
        cursor.execute(f"set session {limit}")
    return connection


class _Connection(pymysql.Connection):
    """A connection for which the time-out covers the handshake, too.

    PyMySQL bounds only the TCP connection by ``connect_timeout``. A dead load balancer accepts that
    and stays silent.
    """

    _read_timeout: float | None
    _write_timeout: float | None

    def connect(self, sock: Any = None) -> None:
        """Connect and log in."""
        answer = self._read_timeout, self._write_timeout
        self._read_timeout = self._write_timeout = self.connect_timeout
        super().connect(sock)
        self._read_timeout, self._write_timeout = answer

    def _create_ssl_ctx(self, sslp: Any) -> ssl.SSLContext:
        """The context for TLS that the server may offer: one for all connections.

        PyMySQL makes one for each, and reads the system's list of authorities into it, although it
        trusts any server then: 45 ms of each connection.
        """
        return sslp if isinstance(sslp, ssl.SSLContext) else _trusts_any_server()


@cache
def _trusts_any_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _tls_options(settings: MySQLSettings) -> dict[str, Any]:
    if settings.tls == "verified":
        # PyMySQL's own context does not check the host name when no CA is given.
        context = trusting(settings.ssl_ca, key_of(settings.section, "ssl_ca"))
        if settings.ssl_cert is not None:
            own = key_of(settings.section, "ssl_cert")
            showing(context, settings.ssl_cert, settings.ssl_key_password, own)
        return {"ssl": context}
    # Without any option PyMySQL encrypts when the server offers it.
    return {"ssl_disabled": True} if settings.tls == "disabled" else {}


class ConnectionPool:
    """Opens connections to read with, and uses some of those that are given back again.

    A login costs as much as several queries. An idle connection is pinged before it is used, as the
    server may have closed it. From any thread.

    Args:
        clock: Seconds that only go on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle: deque[tuple[float, MySQLSettings, Connection]] = deque()
        self._of: dict[int, MySQLSettings] = {}

    def open(self, settings: MySQLSettings) -> Connection:
        """An idle connection with these settings that still answers, or else a new one.

        Raises:
            TallyError: As :func:`connect_to_read`.
        """
        while True:
            try:
                since, known, connection = self._idle.pop()
            except IndexError:
                connection = connect_to_read(settings)
                break
            if known == settings and self._clock() - since < IDLE_MAX_S and _answers(connection):
                break
            _end(connection)
        self._of[id(connection)] = settings
        return connection

    def close(self, connection: Connection) -> None:
        """Keep a connection that was given back, or close it."""
        settings = self._of.pop(id(connection), None)
        if settings is None or not connection.open or len(self._idle) >= _IDLE_CONNECTIONS_MAX:
            _end(connection)
            return
        self._idle.append((self._clock(), settings, connection))


def _answers(connection: Connection) -> bool:
    try:
        connection.ping(reconnect=False)
    except (pymysql.err.Error, OSError):
        return False
    return True


def _end(connection: Connection) -> None:
    with suppress(pymysql.err.Error, OSError):  # it is broken already
        connection.close()
