"""Brokers that let nobody in without a login: each way in, and what is said where it stays shut."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tally.context import spark_reader
from tally_local.stack.stack import Stack
from tests.cli.conftest import LINE, Call
from tests.locked_broker import USER, LockedBroker, locked_broker
from tests.tls_listener import certificate
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LINES = 1_001
"""More than librdkafka reads of a partition: Spark does."""
SECRET = "a wrong one"  # noqa: S105 - it is shown nowhere


@pytest.fixture
def ports(spark: SparkSession) -> dict[str, Any]:
    """Commands read with the session of the tests instead of starting and stopping one."""
    return {"read_with": spark_reader, "open_spark": lambda _, **__: nullcontext(spark)}


@pytest.fixture(scope="module")
def doors(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedBroker]:
    with locked_broker(stack, tmp_path_factory.mktemp("locked")) as broker:
        yield broker


@pytest.fixture
def broker(doors: LockedBroker, world: World, monkeypatch: pytest.MonkeyPatch) -> LockedBroker:
    """It has the world's topic: many lines in the one partition, three in the other."""
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", doors.open_address)
    there = world.through()  # with clients of its own
    there.create_topic(2)
    there.produce([LINE] * LINES, 0)
    there.produce([LINE] * 3, 1)
    return doors


def come_in(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    """Configure Kafka so."""
    for key, value in settings.items():
        monkeypatch.setenv(f"TALLY_KAFKA__{key.upper()}", value)


@pytest.mark.parametrize("door", ["password", "certificate", "token"])
def test_both_clients_come_in(
    tally: Call, world: World, broker: LockedBroker, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    """Librdkafka asks for offsets and reads the small range, Java's client the large one.

    The right to read the topic is enough: of consumer groups there is none. Without it the topic
    is named.
    """
    come_in(monkeypatch, broker.settings(door))
    tally("plan").ends(4, f"Kafka ({broker.address[door]}) could not", "Topic authorization failed")
    broker.allow_to_read(world.topic)
    tally("run").ends(0)
    assert sum(world.counts().values()) == LINES + 3
    tally("audit", "--recount").ends(0)
    tally("status", "--check").ends(0)
    told = tally("lines", LINE[:16], "--limit", "2000", "--json").ends(0).document
    assert len(told["lines"]) == LINES + 3


WRONG = {
    "password": (
        "password",
        {"sasl_password": SECRET},
        ("kafka.sasl_username comes from TALLY_KAFKA__SASL_USERNAME", "kafka.sasl_password comes"),
    ),
    "no certificate": (
        "certificate",
        {"ssl_keystore_location": ""},
        ("the broker asks for a certificate", "let kafka.ssl_keystore_location name"),
    ),
    "a stranger's certificate": (
        "certificate",
        {"ssl_keystore_location": "STRANGER"},
        ("it refuses that of", "kafka.ssl_keystore_location comes from TALLY_KAFKA__SSL_KEYSTORE"),
    ),
    "another authority": (
        "token",
        {"ssl_ca_location": "STRANGER"},
        ("kafka.ssl_ca_location",),
    ),
    "secret": (
        "token",
        {"sasl_password": SECRET},
        ("invalid_client", "kafka.sasl_password comes from TALLY_KAFKA__SASL_PASSWORD"),
    ),
    "no issuer": (
        "token",
        {"sasl_oauthbearer_token_endpoint_url": "https://127.0.0.1:9/token"},
        ("kafka.sasl_oauthbearer_token_endpoint_url",),
    ),
}


@pytest.mark.parametrize(("door", "wrong", "said"), WRONG.values(), ids=WRONG)
def test_where_a_login_is_refused_it_is_said_why(
    tally: Call,
    broker: LockedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    door: str,
    wrong: dict[str, str],
    said: tuple[str, ...],
) -> None:
    """By each command that asks Kafka, and at once: no secret is shown."""
    settings = broker.settings(door) | wrong
    for key in [key for key, value in settings.items() if value == "STRANGER"]:
        settings[key] = str(certificate(tmp_path, name=USER))
    come_in(monkeypatch, {key: value for key, value in settings.items() if value})
    monkeypatch.setenv("TALLY_KAFKA__REQUEST_TIMEOUT_S", "250")
    began = time.monotonic()
    for command in ("plan", "status"):
        answer = tally(command)
        assert SECRET not in answer.stdout + answer.stderr
        answer.ends(answer.exit_code, f"Kafka ({broker.address[door]}) ", *said)
        assert answer.exit_code in (3, 4)
    assert time.monotonic() - began < 125


# --- a MySQL that asks for a certificate


@pytest.fixture
def own(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The certificate by which MySQL lets the user in, and by nothing else."""
    shown, own = certificate(tmp_path), certificate(tmp_path, name=USER)
    user, database = world.name, world.settings.mysql.database
    with ExitStack() as changed:
        changed.callback(world.as_root, "alter instance reload tls", f"drop user '{user}'")
        for variable, file in {"ca": own, "cert": shown, "key": shown}.items():
            changed.enter_context(world.global_variable(f"ssl_{variable}", str(file)))
        world.as_root(
            "alter instance reload tls",
            f"create user '{user}' identified by '{SECRET}' require subject '/CN={USER}'",
            f"grant all on `{database}`.* to '{user}'",
        )
        settings = {"user": user, "password": SECRET, "tls": "verified", "ssl_ca": shown}
        for key, value in settings.items():
            monkeypatch.setenv(f"TALLY_MYSQL__{key.upper()}", str(value))
        yield own


def test_mysql_lets_a_certificate_in(
    tally: Call, world: World, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one the user is refused; one that the server does not know ends the connection."""
    tally("plan").ends(4, "Access denied for user", "and mysql.ssl_cert if it is to have one")
    monkeypatch.setenv("TALLY_MYSQL__SSL_CERT", str(certificate(tmp_path, name=USER)))
    tally("plan").ends(3, "let mysql.ssl_cert name a certificate of an authority that it trusts")
    monkeypatch.setenv("TALLY_MYSQL__SSL_CERT", str(own))
    world.produce([LINE])
    tally("run").ends(0)
    assert len(tally("lines", LINE[:16], "--json").ends(0).document["lines"]) == 1
