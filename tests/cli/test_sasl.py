"""A Kafka that asks for a user and a password."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tally_local.stack.stack import Stack
from tests.cli.conftest import LINE, Call
from tests.sasl_broker import SaslBroker, sasl_broker
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture(scope="module")
def broker(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """One for all tests of the file."""
    with sasl_broker(stack, tmp_path_factory.mktemp("sasl")) as broker:
        yield broker


@pytest.fixture
def world(
    migrated: Stack, broker: SaslBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    """A pipeline of the broker's; its topic has three lines, and Tally logs in as it should."""
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", broker.open_address)
    world = World.create(migrated, tmp_path)
    world.produce([LINE] * 3)
    monkeypatch.setenv("TALLY_CONFIG", str(world.config))
    for key, value in {
        "BOOTSTRAP_SERVERS": broker.address,
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_MECHANISM": "PLAIN",
        "SASL_USERNAME": broker.user,
        "SASL_PASSWORD": broker.password,
        "REQUEST_TIMEOUT_S": "10",
    }.items():
        monkeypatch.setenv(f"TALLY_KAFKA__{key}", value)
    return world


@pytest.mark.usefixtures("lent_spark")
def test_both_clients_log_in(tally: Call, world: World) -> None:
    """Planning asks for offsets with one, Spark reads with the other; a recount agrees."""
    assert tally("run").exit_code == 0
    assert sum(world.counts().values()) == 3
    assert tally("audit", "--recount").exit_code == 0
    assert tally("status", "--check").exit_code == 0


def test_a_refused_login_says_where_user_and_password_come_from(
    tally: Call, broker: SaslBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once and for good, by each command that asks Kafka; the password is shown nowhere."""
    monkeypatch.setenv("TALLY_KAFKA__SASL_PASSWORD", "a wrong one")
    for command in ("plan", "status"):
        answer = tally(command).ends(
            4,
            f"Kafka ({broker.address}) could not",
            "kafka.sasl_username comes from TALLY_KAFKA__SASL_USERNAME",
            "kafka.sasl_password comes from TALLY_KAFKA__SASL_PASSWORD",
        )
        assert "a wrong one" not in answer.stdout + answer.stderr
