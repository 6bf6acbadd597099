"""Airflow's connections as Tally's configuration."""

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tally import errors
from tally.airflow.connections import connected_settings, spark_settings
from tally.airflow.policies import final, final_unless_retryable
from tally.config.servers import SparkSettings

pytestmark = pytest.mark.airflow


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Any:
    def define_one(name: str, **fields: Any) -> None:
        monkeypatch.setenv(f"AIRFLOW_CONN_TALLY_{name.upper()}", json.dumps(fields))

    return define_one


def test_connections_override_file_and_environment(
    config: Path,
    define: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What a connection leaves out stays as configured; an undefined one is no error or line."""
    caplog.set_level("INFO")
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "broker:1")
    monkeypatch.setenv("TALLY_MYSQL__HOST", "from-environment")
    monkeypatch.setenv("TALLY_MYSQL__CONNECT_TIMEOUT_S", "7")
    configured = connected_settings(config)
    assert configured.kafka.bootstrap_servers == "broker:1"
    assert (configured.mysql.host, configured.mysql.user) == ("from-environment", "tally")
    assert configured.results is None
    assert "tally_results" not in caplog.text
    where = {"conn_type": "mysql", "host": "db.example", "port": 3307, "login": "counter"}
    more = {"password": "p@ss", "schema": "ledger", "extra": {"ssl_ca": "/etc/ca.pem"}}
    define("mysql", **where, **more)
    define("results", conn_type="mysql", host="lines.example", password="other", schema="lines")
    connected: Any = connected_settings(config)
    mysql, results = connected.mysql, connected.results
    assert (mysql.host, mysql.port, mysql.user) == ("db.example", 3307, "counter")
    assert (mysql.database, mysql.ssl_ca) == ("ledger", Path("/etc/ca.pem"))
    assert mysql.password.get_secret_value() == "p@ss"
    assert mysql.connect_timeout_s == 7
    assert (results.host, results.user, results.database) == ("lines.example", "tally", "lines")
    assert results.password.get_secret_value() == "other"


def test_kafkas_connection_has_address_and_login(config: Path, define: Any) -> None:
    for fields, servers in (
        ({"host": "one", "port": 9092}, "one:9092"),
        ({"host": "one:9092,two:9092"}, "one:9092,two:9092"),
        ({"extra": {"bootstrap.servers": "three:9092"}}, "three:9092"),
        ({"host": "one", "port": 1, "extra": {"bootstrap_servers": "four:9092"}}, "four:9092"),
    ):
        define("kafka", conn_type="kafka", **fields)
        assert connected_settings(config).kafka.bootstrap_servers == servers
    login = {"conn_type": "kafka", "host": "b:9093", "login": "u", "password": "s3cret"}
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    define("kafka", **login, extra=sasl)
    kafka = connected_settings(config).kafka
    assert (kafka.security_protocol, kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (kafka.sasl_username, kafka.sasl_password.get_secret_value()) == ("u", "s3cret")


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("mysql", {"extra": {"ssl_crl": "x"}}, r"mysql\.ssl_crl"),
        ("kafka", {"login": "u"}, "has a login"),
    ],
)
def test_what_would_not_be_used_is_an_error_without_the_password(
    name: str, fields: dict[str, Any], said: str, config: Path, define: Any
) -> None:
    define(name, conn_type=name, host="b:1", password="s3cret", **fields)
    with pytest.raises(errors.ConfigError, match=said) as caught:
        connected_settings(config)
    assert "s3cret" not in str(caught.value)


def test_a_spark_connection_names_a_master_or_says_why_not(define: Any) -> None:
    """None (the provider would go to YARN), another type, no master, a driver somewhere else."""
    with pytest.raises(errors.SparkConnectionError, match="no connection tally_spark"):
        spark_settings(SparkSettings())
    in_cluster = {"host": "yarn", "extra": {"deploy-mode": "cluster"}}
    for fields, said in (
        ({"conn_type": "spark_connect"}, "name a server"),
        ({"conn_type": "yarn"}, "must be of type 'spark'"),
        ({"conn_type": "spark"}, "name a master"),
        ({"conn_type": "spark", **in_cluster}, "deploy-mode cluster"),
    ):
        define("spark", **fields)
        with pytest.raises(errors.SparkConnectionError, match=said):
            spark_settings(SparkSettings())
    for fields, master in (
        ({"host": "local[2]"}, "local[2]"),
        ({"host": "spark://master", "port": 7077}, "spark://master:7077"),
        ({"host": "yarn"}, "yarn"),
    ):
        define("spark", conn_type="spark", **fields)
        assert spark_settings(SparkSettings()).master == master


def test_a_servers_address_is_read_as_the_provider_reads_it(define: Any) -> None:
    """Except the token, which is a secret; a token for another server is dropped."""
    configured = SparkSettings.model_validate(
        {"connect_token": "an0ther", "conf": {"spark.a": "1"}}
    )
    tls = {"extra": {"use_ssl": True}}
    for fields, master, token in (
        ({"host": "sc://spark", "port": 15002}, "sc://spark:15002/", ""),
        ({"host": "spark", "login": "ann b"}, "sc://spark/;user_id=ann%20b", ""),
        ({"host": "spark", "password": "a;b=c/ d"}, "sc://spark/", "a;b=c/ d"),
        ({"host": "spark", "password": "s3cret", **tls}, "sc://spark/;use_ssl=True", "s3cret"),
    ):
        define("spark", conn_type="spark_connect", **fields)
        found = spark_settings(configured)
        assert (found.master, found.connect_token.get_secret_value()) == (master, token)
        assert found.conf == {"spark.a": "1"}
        assert not token or token not in repr(found)
    define("spark", conn_type="spark_connect", host="spark host", password="s3cret")
    with pytest.raises(errors.SparkConnectionError, match="gives no address") as caught:
        spark_settings(SparkSettings())
    assert "s3cret" not in str(caught.value)


# --- what a task does with Tally's errors


def test_an_error_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Its sentence with the next step, once: the traceback that Airflow shows may hide both."""
    with pytest.raises(AirflowFailException) as failed, final_unless_retryable():
        raise errors.ReplayRefusedError(
            "a replay needs a reason", next_step="fill in the field Reason"
        )
    assert failed.value.__suppress_context__, "one traceback is enough for an expected state"
    with pytest.raises(AirflowFailException), final_unless_retryable():
        raise final("batch 7: abandoned")  # which says it already
    with pytest.raises(errors.KafkaUnavailableError), final_unless_retryable():
        raise errors.KafkaUnavailableError("no answer")
    assert caplog.messages == [
        "[replay-refused] a replay needs a reason Next: fill in the field Reason",
        "batch 7: abandoned",
        "[kafka-unavailable] no answer Next: tally doctor",
    ]


def test_a_refused_login_says_where_the_password_comes_from(
    define: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection wins over the configuration, so this is the one to correct."""
    for source in (
        "the configuration, as there is no connection tally_mysql",
        "the connection tally_mysql",
    ):
        refused = errors.AccessDeniedError("refused", next_step="correct them")
        refused.credentials = ("mysql.user", "mysql.password")
        with pytest.raises(AirflowFailException), final_unless_retryable():
            raise refused
        said = caplog.messages[-1]
        assert said.endswith(f"correct them; mysql.user and mysql.password come from {source}")
        define("mysql", conn_type="mysql", login="ann", password="wr0ng", host="127.0.0.1")
