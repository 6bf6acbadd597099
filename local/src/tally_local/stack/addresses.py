"""The addresses of a stack's servers, for Tally's settings and for Airflow's connections."""

import json
from collections.abc import Mapping
from pathlib import Path

import tomli_w

from tally_local.stack.home import Credentials, Layout, write_private
from tally_local.stack.mysql_server import CONSOLE_USER, DATABASE, USER
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.spark_cluster import CONF, cluster_master
from tally_local.stack.spark_server import HOST, master

HEADER = "# Written by `tally up`: the servers of the local stack. Overrides tally.toml.\n\n"


def write_addresses(
    layout: Layout, *, ports: Mapping[str, int], credentials: Credentials, jars: Path
) -> None:
    """Write both, for the owner only; a server without a port yet is left out.

    Airflow reads its file at each lookup, so a server that came back on another port is found.
    """
    write_private(layout.overlay, HEADER + tomli_w.dumps(_settings(ports, credentials, jars)))
    connections = json.dumps(connections_of(ports, credentials), indent=2) + "\n"
    write_private(layout.connections, connections)


def _settings(
    ports: Mapping[str, int], credentials: Credentials, jars: Path
) -> dict[str, dict[str, object]]:
    """The sections of ``tally.toml`` that name the servers."""
    sections: dict[str, dict[str, object]] = {}
    if "kafka" in ports:
        sections["kafka"] = {"bootstrap_servers": f"{LOOPBACK}:{ports['kafka']}"}
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
        sections["spark"] |= {"master": master(ports), "connect_token": credentials.spark_token}
    elif "cluster" in ports:
        sections["spark"] |= {"master": cluster_master(ports), "conf": dict(CONF)}
    return sections


def connections_of(
    ports: Mapping[str, int], credentials: Credentials
) -> dict[str, dict[str, object]]:
    """The stack's own servers, as Airflow's local-filesystem backend reads them."""
    connections: dict[str, dict[str, object]] = {"tally_spark": _spark(ports, credentials)}
    if "kafka" in ports:
        connections["tally_kafka"] = {
            "conn_type": "kafka",
            "extra": {"bootstrap.servers": f"{LOOPBACK}:{ports['kafka']}"},
        }
    if "mysql" in ports:
        connections["tally_mysql"] = {
            "conn_type": "mysql",
            "host": LOOPBACK,
            "port": ports["mysql"],
            "login": USER,
            "password": credentials.mysql_tally,
            "schema": DATABASE,
        }
        connections["tally_console"] = {
            "conn_type": "mysql",
            "login": CONSOLE_USER,
            "password": credentials.mysql_console,
        }
    return connections


def _spark(ports: Mapping[str, int], credentials: Credentials) -> dict[str, object]:
    """The server that is kept warm; while there is none, a Spark for each batch."""
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
        "host": cluster_master(ports) if "cluster" in ports else "local[2]",
        "extra": {"spark-binary": "spark-submit", "deploy-mode": "client"},
    }
