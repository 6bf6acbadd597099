"""The addresses of a stack's servers, for Tally's settings and Airflow's connection to Spark."""

import json
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from tally_local.stack.home import Credentials, Layout, write_private
from tally_local.stack.kafka_server import KafkaServer
from tally_local.stack.mysql_server import CONSOLE_USER, DATABASE, USER
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.spark_cluster import CONF, SparkCluster
from tally_local.stack.spark_server import HOST, SparkServer

HEADER = "# Written by `tally up`: the servers of the local stack. Overrides tally.toml.\n\n"


def write_addresses(
    layout: Layout, *, ports: Mapping[str, int], credentials: Credentials, jars: Path
) -> None:
    """Write both, for the owner only; a server without a port yet is left out.

    Tally and Airflow read the files each time, so a server that came back on another port is found.
    """
    write_private(layout.overlay, HEADER + tomli_w.dumps(_settings(ports, credentials, jars)))
    connections = {"tally_spark": spark_connection(ports, credentials)}
    write_private(layout.connections, json.dumps(connections, indent=2) + "\n")


def _settings(
    ports: Mapping[str, int], credentials: Credentials, jars: Path
) -> dict[str, dict[str, object]]:
    """The sections of ``tally.toml`` that name the servers."""
    sections: dict[str, dict[str, object]] = {}
    if "kafka" in ports:
        sections["kafka"] = {"bootstrap_servers": KafkaServer.address(ports)}
    if "mysql" in ports:
        sections["mysql"] = {
            "host": LOOPBACK,
            "port": ports["mysql"],
            "user": USER,
            "password": credentials.mysql_tally,
            "database": DATABASE,
        }
        sections["console"] = {"user": CONSOLE_USER, "password": credentials.mysql_console}
    sections["spark"] = {"jars_dir": str(jars)}
    if "spark" in ports:
        token = credentials.spark_token
        sections["spark"] |= {"master": SparkServer.address(ports), "connect_token": token}
    elif "cluster" in ports:
        sections["spark"] |= {"master": SparkCluster.address(ports), "conf": dict(CONF)}
    return sections


def spark_connection(ports: Mapping[str, int], credentials: Credentials) -> dict[str, object]:
    """The server that is kept warm; while there is none, a Spark for each batch.

    As Airflow's local-filesystem backend reads it. Kafka and MySQL need no connection: where none
    is defined, the settings apply.
    """
    if "spark" in ports:
        return {
            "conn_type": "spark_connect",
            "host": HOST,
            "port": ports["spark"],
            "password": credentials.spark_token,
        }
    # In the format of the Spark provider; Python runs on these masters only in client mode.
    return {
        "conn_type": "spark",
        "host": SparkCluster.address(ports) if "cluster" in ports else "local[2]",
        "extra": {"spark-binary": "spark-submit", "deploy-mode": "client"},
    }
