"""Options of a connection, and the translation of MySQL's errors."""

import socket
import ssl

import pymysql
import pytest
from pymysql.constants import ER

from tally.config.servers import MySQLSettings
from tally.errors import (
    AccessDeniedError,
    CountOverflowError,
    MySQLUnavailableError,
    SchemaError,
    StatementError,
    TallyError,
    TransactionRetryError,
)
from tally.mysql.connection import _Connection, _tls_options, connect
from tally.mysql.errors import translate


def test_a_verified_connection_checks_certificate_and_name() -> None:
    """Also without a CA of its own."""
    context = _tls_options(MySQLSettings(tls="verified"))["ssl"]
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_connections_that_trust_any_server_share_a_context() -> None:
    """PyMySQL would read the system's authorities for each; a verified one keeps its own."""
    first, second, verified = (
        _Connection(defer_connect=True, **_tls_options(MySQLSettings(tls=tls))).ctx
        for tls in ("preferred", "preferred", "verified")
    )
    assert first is second
    assert first.verify_mode is ssl.CERT_NONE
    assert verified.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (pymysql.err.OperationalError(1045, "x"), AccessDeniedError),
        (pymysql.err.OperationalError(1142, "x"), AccessDeniedError),
        (pymysql.err.ProgrammingError(1146, "x"), SchemaError),
        (pymysql.err.OperationalError(1213, "x"), TransactionRetryError),
        (pymysql.err.OperationalError(1205, "x"), TransactionRetryError),
        (pymysql.err.OperationalError(3101, "x"), TransactionRetryError),
        (pymysql.err.OperationalError(1290, "x"), MySQLUnavailableError),
        (pymysql.err.OperationalError(1836, "x"), MySQLUnavailableError),
        (pymysql.err.OperationalError(1180, "x"), MySQLUnavailableError),
        (pymysql.err.OperationalError(2013, "x"), MySQLUnavailableError),
        (pymysql.err.OperationalError(4031, "x"), MySQLUnavailableError),
        (pymysql.err.InterfaceError(0, ""), MySQLUnavailableError),
        (pymysql.err.InternalError("Packet sequence number wrong"), MySQLUnavailableError),
        (ConnectionResetError("reset"), MySQLUnavailableError),
        (pymysql.err.OperationalError(1021, "disk full"), StatementError),
        (pymysql.err.OperationalError(1114, "table full"), StatementError),
        (pymysql.err.OperationalError(1153, "packet"), StatementError),
        (pymysql.err.DataError(1264, "out of range"), CountOverflowError),
        (pymysql.err.OperationalError(3819, "check"), StatementError),
    ],
)
def test_each_error_of_mysql_is_of_one_class(error: Exception, ours: type[TallyError]) -> None:
    """Each is translated to one class, and keeps the driver's text."""
    translated = translate(error, "me@there")
    assert type(translated) is ours
    assert "me@there" in translated.what
    assert str(error.args[-1]) in translated.what


def test_a_server_that_accepts_and_stays_silent_is_not_waited_for() -> None:
    """A dead load balancer: the time-out of the connection covers the handshake, too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = MySQLSettings(
            host="127.0.0.1",
            port=silent.getsockname()[1],
            connect_timeout_s=1,
            statement_timeout_s=86_400,
        )
        with pytest.raises(MySQLUnavailableError, match="timed out"):
            connect(settings)


def test_an_error_names_the_section_of_its_server() -> None:
    """The lines may be on another server than the ledger."""
    refused = pymysql.err.OperationalError(ER.ACCESS_DENIED_ERROR, "no")
    for section in ("mysql", "results"):
        error = translate(refused, section=section)
        assert error.next_step == f"check {section}.user, its password and its grants"
        assert isinstance(error, AccessDeniedError)
        assert error.credentials == (f"{section}.user", f"{section}.password")
