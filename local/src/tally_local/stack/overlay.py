"""The file with the addresses of a stack's servers, for the settings loader."""

from collections.abc import Mapping
from pathlib import Path

import tomli_w

from tally_local.stack.credentials import Credentials
from tally_local.stack.mysql_server import CONSOLE_USER, DATABASE, USER
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.private_files import write_private
from tally_local.stack.spark_cluster import CONF, cluster_master
from tally_local.stack.spark_server import master

HEADER = "# Written by `tally up`: the servers of the local stack. Overrides tally.toml.\n\n"


def write_overlay(
    path: Path, *, ports: Mapping[str, int], credentials: Credentials, jars: Path
) -> None:
    """Write the overlay, for the owner only; a server without a port yet is left out."""
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
    write_private(path, HEADER + tomli_w.dumps(sections))
