"""Opening a connection to MySQL; no other module does.

A connection belongs to one transaction at a time and never reconnects by itself: PyMySQL does so
only in a ``ping`` that asks for it, and none does. A transaction that has lost its connection is
therefore rolled back as a whole.
"""

import ssl
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import pymysql
from pymysql.converters import conversions, escape_datetime
from pymysql.cursors import DictCursor

from tally.config.servers import MySQLSettings, key_of, trusting
from tally.mysql.errors import our_errors

# How long a connection may be idle inside a transaction, as a multiple of the lock wait timeout. A
# process that was stopped in its commit must not keep locks for MySQL's default of eight hours.
_IDLE_IN_LOCK_WAITS: Final = 3

# MySQL's value for "all rows". ``default`` would be the server's own limit, which may hide rows
# from the audit.
_ALL_ROWS: Final = 2**64 - 1


def connect(settings: MySQLSettings, **options: Any) -> "pymysql.Connection[Any]":
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


def _in_utc(moment: datetime, mapping: Any = None) -> str:
    """A time for a ``datetime`` column: one with a zone in UTC, another as it is."""
    return escape_datetime(moment.astimezone(UTC) if moment.tzinfo else moment, mapping)


def connect_to_read(settings: MySQLSettings) -> "pymysql.Connection[Any]":
    """A connection on which the server ends each query after ``statement_timeout_s``."""
    connection = connect(
        settings,
        # The server's answer that it has ended a query must still arrive.
        read_timeout=settings.statement_timeout_s * 2,
    )
    seconds = settings.statement_timeout_s
    version = str(connection.get_server_info())  # type: ignore[no-untyped-call]
    is_mariadb = "mariadb" in version.lower()
    limit = f"max_statement_time = {seconds}"
    with our_errors(section=settings.section), connection.cursor() as cursor:
        cursor.execute(
            f"set session {limit if is_mariadb else f'max_execution_time = {seconds * 1000}'}"
        )
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
        return {"ssl": trusting(settings.ssl_ca, key_of(settings.section, "ssl_ca"))}
    # Without any option PyMySQL encrypts when the server offers it.
    return {"ssl_disabled": True} if settings.tls == "disabled" else {}
