"""Options of a connection, and the translation of MySQL's errors."""

import re
import socket
import ssl
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pymysql
import pytest
from pydantic import SecretStr
from pymysql.err import OperationalError
from tests.fakes import ManualClock
from tests.servers import PROJECT
from tests.tls_listener import MYSQLS_GREETING, certificate, tls_listener
from tests.unit.sources import text

from tally import errors
from tally.clock import Clock
from tally.config.names import RESERVED_TABLES
from tally.config.servers import KafkaSettings, MySQLSettings
from tally.kafka.client import Kafka
from tally.ledger.table_changes import FIRST_RESULT
from tally.mysql.connection import _Connection, _tls_options, connect
from tally.mysql.errors import translate
from tally.mysql.transactions import Database, Transaction


def test_no_result_table_may_have_the_name_of_one_of_the_ledger() -> None:
    """The audit of what is lost, and of rights, goes by the same names."""
    made = re.findall(
        r"^CREATE TABLE `(.*)`", text(PROJECT / "sql/schema/schema.sql"), re.MULTILINE
    )
    assert {*made} - {FIRST_RESULT} == RESERVED_TABLES


def test_a_verified_connection_checks_certificate_and_name() -> None:
    """Without a CA of its own, too; connections that trust any server share a context."""
    first, second, verified = (
        _Connection(defer_connect=True, **_tls_options(MySQLSettings(tls=tls))).ctx
        for tls in ("preferred", "preferred", "verified")
    )
    assert first is second
    assert first.verify_mode is ssl.CERT_NONE
    assert verified.verify_mode is ssl.CERT_REQUIRED
    assert verified.check_hostname


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("no PEM", "PEM")])
def test_authorities_that_cannot_be_read_are_named(
    tmp_path: Path, content: str | None, said: str
) -> None:
    """With their key, before a server is asked."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    mysql = MySQLSettings(tls="verified", ssl_ca=file)
    kafka = KafkaSettings(ssl_ca_location=file)
    for key, use in (
        ("mysql.ssl_ca", partial(connect, mysql)),
        ("kafka.ssl_ca_location", partial(Kafka(kafka).snapshot, ["a"])),
    ):
        with pytest.raises(errors.ConfigError, match=f"{key} = {file}: .*{said}"):
            use()


@pytest.mark.parametrize(
    ("content", "password", "said"),
    [
        (None, None, "No such file"),
        ("no PEM", None, "no key in PKCS#8"),
        ("-----BEGIN PRIVATE KEY-----", None, "it is no PEM"),
        ("encrypted", None, "its key is encrypted"),
        ("encrypted", "another", "ssl_key_password, do not fit"),
    ],
)
def test_a_certificate_that_cannot_be_shown_is_named(
    tmp_path: Path, content: str | None, password: str | None, said: str
) -> None:
    """With its key, before a server is asked; a password is not asked for at the terminal."""
    file = tmp_path / "own.pem"
    if content == "encrypted":
        file = certificate(tmp_path, password="right")  # noqa: S106 - for this test
    elif content is not None:
        file.write_text(content, encoding="utf-8")
    secret = password and SecretStr(password)
    mysql = MySQLSettings(tls="verified", ssl_cert=file, ssl_key_password=secret)
    kafka = KafkaSettings(
        security_protocol="SSL", ssl_keystore_location=file, ssl_key_password=secret
    )
    for key, use in (
        ("mysql.ssl_cert", partial(connect, mysql)),
        ("kafka.ssl_keystore_location", partial(Kafka(kafka).snapshot, ["a"])),
    ):
        with pytest.raises(errors.ConfigError, match=f"{key} = {file}: .*{said}"):
            use()


@pytest.mark.parametrize(
    ("name", "said"), [("127.0.0.1", "self-signed"), ("other.example", "IP address mismatch")]
)
def test_a_certificate_that_is_not_accepted_is_for_an_operator(
    tmp_path: Path, name: str, said: str
) -> None:
    """Not MySQL that is down: waiting does not help. The settings to look at are named."""
    shown = certificate(tmp_path, name=name)
    trusted = certificate(tmp_path) if said == "self-signed" else shown
    with tls_listener(shown, MYSQLS_GREETING) as address:
        host, _, port = address.partition(":")
        settings = MySQLSettings(host=host, port=int(port), tls="verified", ssl_ca=trusted)
        with pytest.raises(errors.ConfigError, match=said) as raised:
            connect(settings)
    for key in ("mysql.ssl_ca", "mysql.host", "mysql.tls"):
        assert key in raised.value.next_step


CLASSES: dict[type[errors.TallyError], list[Exception]] = {
    errors.AccessDeniedError: [OperationalError(1045, "x"), OperationalError(1142, "x")],
    errors.SchemaError: [pymysql.err.ProgrammingError(1146, "x")],
    errors.TransactionRetryError: [OperationalError(code, "x") for code in (1213, 1205, 3101)],
    errors.MySQLUnavailableError: [
        *(OperationalError(code, "x") for code in (1290, 1836, 1180, 2013, 4031)),
        pymysql.err.InterfaceError(0, ""),
        pymysql.err.InternalError("Packet sequence number wrong"),
        ConnectionResetError("reset"),
    ],
    errors.StatementError: [
        *(OperationalError(1021, "disk full"), OperationalError(1114, "table full")),
        *(OperationalError(1153, "packet"), OperationalError(3819, "check")),
    ],
    errors.CountOverflowError: [pymysql.err.DataError(1264, "out of range")],
}


def test_each_error_of_mysql_is_of_one_class() -> None:
    """Each is translated to one class, and keeps the driver's text, with the server's section."""
    for ours, theirs in CLASSES.items():
        for error in theirs:
            translated = translate(error, "me@there")
            assert type(translated) is ours, error
            assert "me@there" in translated.what
            assert str(error.args[-1]) in translated.what
    lacking = translate(pymysql.err.ProgrammingError(1146, "no table"))
    assert "tally migrate" in lacking.next_step
    assert "backup" in lacking.next_step
    for section in ("mysql", "results", "console"):
        denied = translate(OperationalError(1045, "no"), section=section)
        theirs = "mysql" if section == "console" else section
        assert denied.next_step == (
            f"check {section}.user, its password, its grants, and {theirs}.ssl_cert if it is to "
            "have one"
        )
        assert isinstance(denied, errors.AccessDeniedError)
        assert denied.credentials == (f"{section}.user", f"{section}.password")
        denied = translate(OperationalError(1142, "no"), section=section)
        assert denied.next_step.startswith(f"grant {section}.user what it lacks: tally doctor")
    # The console has a user of its own, on the server of the ledger.
    nowhere = translate(OperationalError(1049, "no"), section="console")
    assert "mysql.database names" in nowhere.next_step


def test_a_server_that_accepts_and_stays_silent_is_not_waited_for() -> None:
    """A dead load balancer: the time-out of the connection covers the handshake, too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        timeouts = {"connect_timeout_s": 1, "statement_timeout_s": 86_400}
        settings = MySQLSettings(host="127.0.0.1", port=silent.getsockname()[1], **timeouts)
        with pytest.raises(errors.MySQLUnavailableError, match="timed out"):
            connect(settings)


def test_the_ledgers_time_is_that_of_the_clock_without_its_zone() -> None:
    """It comes from the clock that was handed in, once a transaction; the machine's is in UTC."""
    clock = ManualClock(datetime(2026, 11, 20, 12, tzinfo=UTC))
    tx = Transaction(
        pymysql.connect(defer_connect=True), Database(settings=MySQLSettings(), clock=clock)
    )
    for _ in range(2):
        clock.sleep(60)
        assert tx.now() == datetime(2026, 11, 20, 12, 1)  # noqa: DTZ001 - as MySQL takes it
    assert Clock().now().tzinfo is UTC
