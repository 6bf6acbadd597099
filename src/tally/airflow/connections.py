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

from tally.airflow.timeouts import AUDIT_TIMEOUT, Timeouts, bounded
from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.errors import ConfigError, SparkConnectionError

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context

log = logging.getLogger(__name__)

KAFKA: Final = "tally_kafka"
MYSQL: Final = "tally_mysql"
RESULTS: Final = "tally_results"
CONSOLE: Final = "tally_console"
SPARK: Final = "tally_spark"

SUBMIT_TYPE: Final = "spark"
CONNECT_TYPE: Final = "spark_connect"
_TYPES: Final = (SUBMIT_TYPE, CONNECT_TYPE)


def connected_settings(config: Path) -> Settings:
    """The configuration with the addresses and secrets of the connections that are defined.

    Raises:
        ConfigError: The file or a connection holds a value that is not allowed.
    """
    kafka, mysql = find_connection(KAFKA), find_connection(MYSQL)
    results, console = find_connection(RESULTS), find_connection(CONSOLE)
    overrides = {
        "kafka": _kafka_values(kafka) if kafka else {},
        "mysql": _mysql_values(mysql) if mysql else {},
        "results": _mysql_values(results) if results else {},
        "console": _console_values(console) if console else {},
    }
    settings = load_settings(
        config, overrides={key: value for key, value in overrides.items() if value}
    )
    if kafka and kafka.login and not settings.kafka.security_protocol.startswith("SASL"):
        raise ConfigError(
            f"connection {KAFKA} has a login, but kafka.security_protocol is "
            f"{settings.kafka.security_protocol}: the login would not be used",
            next_step=f'give {KAFKA} the extras "security_protocol" and "sasl_mechanism"',
        )
    return settings


def brief_context(config: str, pipeline: str) -> "Context":
    """The context of a short task: its statements time out before the task does.

    Raises:
        ConfigError: As :func:`connected_settings`, or the timeouts are not in order.
    """
    settings = connected_settings(Path(config))
    # A connection may have other timeouts than the file that the DAG was made from.
    return connected_context(
        bounded(settings, Timeouts.of(settings.pipeline(pipeline), settings).plan)
    )


def daily_context(config: str) -> "Context":
    """The context of a task of the daily DAG: its statements time out before the task does.

    Raises:
        ConfigError: As :func:`connected_settings`.
    """
    return connected_context(bounded(connected_settings(Path(config)), AUDIT_TIMEOUT))


def connected_context(settings: Settings) -> "Context":
    """The context of the settings; imports Kafka and MySQL, for running tasks only."""
    from tally.context import open_context

    return open_context(settings)


def find_connection(conn_id: str) -> Connection | None:
    """The connection of that id, None when it is not defined."""
    try:
        connection: Connection = Connection.get(conn_id)
    except AirflowNotFoundException:
        log.debug("connection %s is not defined; the configuration file applies", conn_id)
        return None
    return connection


def require_spark_connection() -> Connection:
    """The connection ``tally_spark``, if a batch can be counted with it.

    Raises:
        SparkConnectionError: It is missing, has another type, or runs the driver on the cluster.
    """
    connection = find_connection(SPARK)
    if connection is None:
        # Without the connection the Spark provider would continue with master=yarn.
        raise SparkConnectionError(
            f"Airflow has no connection {SPARK}",
            next_step=f"airflow connections add {SPARK} --conn-type spark --conn-host 'local[*]'",
        )
    if connection.conn_type not in _TYPES or not connection.host:
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


def _kafka_values(connection: Connection) -> dict[str, Any]:
    """Extras in Kafka's spelling (``security.protocol``) or in Tally's (``security_protocol``)."""
    extras = {key.replace(".", "_"): value for key, value in connection.extra_dejson.items()}
    address = f"{connection.host}:{connection.port}" if connection.port else connection.host
    given = {
        "bootstrap_servers": address,
        "sasl_username": connection.login,
        "sasl_password": connection.password,
    }
    return {key: value for key, value in given.items() if value} | extras


def _console_values(connection: Connection) -> dict[str, Any]:
    """Who reads; the server is that of ``tally_mysql``."""
    return _with_extras(connection, user=connection.login, password=connection.password)


def _mysql_values(connection: Connection) -> dict[str, Any]:
    return _with_extras(
        connection,
        host=connection.host,
        port=connection.port,
        user=connection.login,
        password=connection.password,
        database=connection.schema,
    )


def _with_extras(connection: Connection, **given: Any) -> dict[str, Any]:
    """What a connection says; its extras are the section's other keys."""
    return {key: value for key, value in given.items() if value} | connection.extra_dejson
