"""Airflow's connections as Tally's configuration.

They are read only while a task or the API server works, never while DAGs are parsed.
``tally_kafka``, ``tally_mysql``, ``tally_results`` and ``tally_console`` override all other sources
of the settings; where one is not defined, the file and the environment apply. ``tally_spark`` must
be defined: it says where the count runs, and its type says how: ``spark`` with spark-submit,
``spark_connect`` on a running Spark Connect server.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from pydantic import ValidationError

from tally.config.loading import load_settings
from tally.config.servers import SparkSettings
from tally.config.settings import Settings
from tally.errors import ConfigError, SparkConnectionError

if TYPE_CHECKING:  # DAG parsing must not import the Spark provider
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

log = logging.getLogger(__name__)

SPARK: Final = "tally_spark"
KAFKA: Final = "kafka"

# By section of the configuration: the fields of its connection after the section's keys.
_SERVER: Final = {
    "host": "host",
    "port": "port",
    "user": "login",
    "password": "password",
    "database": "schema",
}
_FIELDS: Final = {
    KAFKA: {"bootstrap_servers": "host", "sasl_username": "login", "sasl_password": "password"},
    "mysql": _SERVER,
    "results": _SERVER,
    "console": {"user": "login", "password": "password"},  # the server is that of tally_mysql
}

SUBMIT_TYPE: Final = "spark"
CONNECT_TYPE: Final = "spark_connect"


def connected_settings(config: Path) -> Settings:
    """The configuration with the addresses and secrets of the connections that are defined.

    Raises:
        ConfigError: The file or a connection holds a value that is not allowed.
    """
    found = {section: find_connection(f"tally_{section}") for section in _FIELDS}
    given = {section: _values(section, one) for section, one in found.items() if one}
    overrides = {section: values for section, values in given.items() if values}
    settings = load_settings(config, overrides=overrides)
    kafka = found[KAFKA]
    if kafka and kafka.login and not settings.kafka.security_protocol.startswith("SASL"):
        raise ConfigError(
            f"connection tally_{KAFKA} has a login, but kafka.security_protocol is "
            f"{settings.kafka.security_protocol}: the login would not be used",
            next_step=f'give tally_{KAFKA} the extras "security_protocol" and "sasl_mechanism"',
        )
    return settings


def find_connection(conn_id: str) -> Connection | None:
    """The connection of that id, None when it is not defined."""
    try:
        connection: Connection = Connection.get(conn_id)
    except AirflowNotFoundException:
        log.debug("connection %s is not defined; the configuration file applies", conn_id)
        return None
    return connection


def _spark_connection() -> Connection:
    """The connection ``tally_spark``, if a batch can be counted with it."""
    connection = find_connection(SPARK)
    if connection is None:
        # Without the connection the Spark provider would continue with master=yarn.
        raise SparkConnectionError(
            f"Airflow has no connection {SPARK}",
            next_step=f"airflow connections add {SPARK} --conn-type spark --conn-host 'local[*]'",
        )
    if connection.conn_type not in (SUBMIT_TYPE, CONNECT_TYPE) or not connection.host:
        raise SparkConnectionError(
            f"connection {SPARK} is of type {connection.conn_type!r} with host "
            f"{connection.host!r}; it must be of type {SUBMIT_TYPE!r} and name a master, or of "
            f"type {CONNECT_TYPE!r} and name a server",
            next_step=f"airflow connections delete {SPARK}, then add it again with --conn-type "
            "spark --conn-host MASTER",
        )
    if connection.extra_dejson.get("deploy-mode") == "cluster":
        raise SparkConnectionError(
            f"connection {SPARK} asks for deploy-mode cluster, where the driver cannot read the "
            "secrets and Airflow does not see how it ended",
            next_step="use deploy-mode client: the executors still run on the cluster",
        )
    return connection


def spark_settings(configured: SparkSettings) -> SparkSettings:
    """The settings with the master, or the server and its token, as the provider reads them.

    Raises:
        SparkConnectionError: The connection ``tally_spark`` is missing, has another type, runs the
            driver on the cluster, or gives no address of a Spark Connect server.
    """
    connection = _spark_connection()
    if connection.conn_type != CONNECT_TYPE:
        # The hook has no public way to say the master, and the driver must not read another one.
        master = submit_hook()._connection["master"]  # noqa: SLF001
        return configured.model_copy(update={"master": str(master)})
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

    try:
        url = str(SparkConnectHook(SPARK).get_connection_url())
        # A token that was configured for another server must not be sent to this one.
        return SparkSettings.model_validate(
            {**dict(configured), "master": url, "connect_token": ""}
        )
    except ValueError as error:
        cause = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SparkConnectionError(
            f"connection {SPARK} gives no address of a Spark Connect server: {cause}",
            next_step="give it the server as host and port, a user id as login, the token as "
            'password, and "use_ssl" as an extra',
        ) from None


def submit_hook(**options: Any) -> "SparkSubmitHook":
    """The provider's hook of the connection; DAG parsing does not import the provider."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    return SparkSubmitHook(conn_id=SPARK, **options)


def _values(section: str, connection: Connection) -> dict[str, Any]:
    """What a connection says of its section; its extras are the section's other keys."""
    given = {key: getattr(connection, field) for key, field in _FIELDS[section].items()}
    extras = connection.extra_dejson
    if section == KAFKA:
        if connection.port:
            given["bootstrap_servers"] = f"{connection.host}:{connection.port}"
        # In Kafka's spelling (``security.protocol``) or in Tally's (``security_protocol``).
        extras = {key.replace(".", "_"): value for key, value in extras.items()}
    return {key: value for key, value in given.items() if value} | extras
