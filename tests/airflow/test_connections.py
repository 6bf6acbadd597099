"""Airflow's connections as Tally's configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from tally.config.servers import SparkSettings
from tally.errors import ConfigError, SparkConnectionError

pytestmark = pytest.mark.airflow


def define(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> None:
    """Define an Airflow connection, as a worker's environment may."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


def test_connections_override_file_and_environment(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection's values override the configuration; what it leaves out stays as configured."""
    from tally.airflow.connections import connected_settings

    monkeypatch.setenv("TALLY_MYSQL__HOST", "from-environment")
    monkeypatch.setenv("TALLY_MYSQL__CONNECT_TIMEOUT_S", "7")
    define(
        monkeypatch,
        "tally_mysql",
        conn_type="mysql",
        host="db.example",
        port=3307,
        login="counter",
        password="p@ss",
        schema="ledger",
        extra={"ssl_ca": "/etc/ca.pem"},
    )
    mysql = connected_settings(config).mysql
    assert (mysql.host, mysql.port, mysql.user) == ("db.example", 3307, "counter")
    assert mysql.database == "ledger"
    assert mysql.password.get_secret_value() == "p@ss"
    assert mysql.ssl_ca == Path("/etc/ca.pem")
    assert mysql.connect_timeout_s == 7


def test_the_server_of_the_lines_has_a_connection_of_its_own(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a section that is there only where it is defined; nothing comes from the ledger's."""
    from tally.airflow.connections import connected_settings

    define(monkeypatch, "tally_mysql", conn_type="mysql", host="db.example", login="counter")
    assert connected_settings(config).results is None
    where = {"host": "lines.example", "password": "p@ss", "schema": "lines"}
    define(monkeypatch, "tally_results", conn_type="mysql", **where)
    results = connected_settings(config).results
    assert results is not None
    assert (results.host, results.user, results.database) == ("lines.example", "tally", "lines")
    assert results.password.get_secret_value() == "p@ss"


def test_without_connections_the_configuration_applies(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undefined connection is no error: the file and the environment apply."""
    from tally.airflow.connections import connected_settings

    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "broker:1")
    settings = connected_settings(config)
    assert settings.kafka.bootstrap_servers == "broker:1"
    assert settings.mysql.user == "tally"


@pytest.mark.parametrize(
    ("fields", "servers"),
    [
        ({"host": "one", "port": 9092}, "one:9092"),
        ({"host": "one:9092,two:9092"}, "one:9092,two:9092"),
        ({"extra": {"bootstrap.servers": "three:9092"}}, "three:9092"),
        ({"host": "one", "port": 1, "extra": {"bootstrap_servers": "four:9092"}}, "four:9092"),
    ],
)
def test_kafkas_address_may_be_given_in_each_usual_way(
    fields: dict[str, Any], servers: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host and port, several in the host, or an extra in Kafka's or Tally's spelling."""
    from tally.airflow.connections import connected_settings

    define(monkeypatch, "tally_kafka", conn_type="kafka", **fields)
    assert connected_settings(config).kafka.bootstrap_servers == servers


def test_kafkas_login_is_used_for_sasl(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Login, password and the protocol's extras make a whole SASL configuration."""
    from tally.airflow.connections import connected_settings

    define(
        monkeypatch,
        "tally_kafka",
        conn_type="kafka",
        host="broker",
        port=9093,
        login="u",
        password="s3cret",
        extra={"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"},
    )
    kafka = connected_settings(config).kafka
    assert (kafka.security_protocol, kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert kafka.sasl_username == "u"
    assert kafka.sasl_password is not None
    assert kafka.sasl_password.get_secret_value() == "s3cret"


def test_a_login_that_would_not_be_used_is_an_error(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials without a SASL protocol are a mistake, not a plain connection."""
    from tally.airflow.connections import connected_settings

    define(monkeypatch, "tally_kafka", conn_type="kafka", host="b:1", login="u", password="s3cret")
    with pytest.raises(ConfigError, match="has a login") as caught:
        connected_settings(config)
    assert "s3cret" not in str(caught.value)


def test_an_unknown_extra_is_an_error_without_the_password(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt extra is named; no secret is."""
    from tally.airflow.connections import connected_settings

    define(
        monkeypatch,
        "tally_mysql",
        conn_type="mysql",
        host="db",
        password="s3cret",
        extra={"ssl_cert": "x"},
    )
    with pytest.raises(ConfigError, match=r"mysql\.ssl_cert") as caught:
        connected_settings(config)
    assert "s3cret" not in str(caught.value)


def test_a_missing_spark_connection_is_an_error() -> None:
    """Spark's provider would silently go to YARN."""
    from tally.airflow.connections import require_spark_connection

    with pytest.raises(SparkConnectionError, match="no connection tally_spark"):
        require_spark_connection()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"conn_type": "spark_connect"}, "name a server"),
        ({"conn_type": "yarn"}, "must be of type 'spark'"),
        ({"conn_type": "spark"}, "name a master"),
        (
            {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}},
            "deploy-mode cluster",
        ),
    ],
)
def test_a_spark_connection_that_cannot_be_used_says_why(
    fields: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another type, no master, or a driver somewhere else."""
    from tally.airflow.connections import require_spark_connection

    define(monkeypatch, "tally_spark", **fields)
    with pytest.raises(SparkConnectionError, match=said):
        require_spark_connection()


@pytest.mark.parametrize(
    ("fields", "master"),
    [
        ({"host": "local[2]"}, "local[2]"),
        ({"host": "spark://master", "port": 7077}, "spark://master:7077"),
        ({"host": "yarn"}, "yarn"),
    ],
)
def test_each_kind_of_master_is_taken_from_the_connection(
    fields: dict[str, Any], master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local, standalone, YARN: as the provider reads the connection."""
    from tally.airflow.connections import require_spark_connection
    from tally.airflow.driver import submit_settings

    define(monkeypatch, "tally_spark", conn_type="spark", **fields)
    require_spark_connection()
    assert submit_settings("tally_spark", SparkSettings()).master == master
