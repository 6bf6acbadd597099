"""Runs the nodes of a standalone Spark cluster; a node that has ended is started again.

Usage: ``python -m tally_local.stack.cluster_nodes --port PORT --web-port PORT --folder FOLDER
--cores CORES HOST…``

SIGTERM ends all nodes, and then the program.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final

import click

from tally.spark.jars import spark_home
from tally.spark.java import JAVA_ENVIRONMENT
from tally.spark.keeper import end, stop_on_signals
from tally_local.stack.ports import LOOPBACK

MEMORY: Final = "3g"
"""Of each worker, for the executors that it starts."""
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
# Files of finished applications, a copy of the connector's jars each, are deleted after an hour.
_CLEANUP: Final = (
    "-Dspark.worker.cleanup.enabled=true -Dspark.worker.cleanup.interval=600"
    " -Dspark.worker.cleanup.appDataTtl=3600"
)
_POLL_S: Final = 0.5
_PAUSE_S: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One process of the cluster."""

    name: str
    """For messages."""
    argv: tuple[str, ...]
    """Program and arguments."""
    env: Mapping[str, str]
    """Its whole environment."""


def main() -> int:
    """Run the nodes until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--web-port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("hosts", nargs="+", metavar="HOST")
    asked = parser.parse_args()
    stopping = stop_on_signals()
    nodes = [_master(asked.port, asked.web_port)]
    nodes += [_worker(host, asked.port, asked.cores, asked.folder / host) for host in asked.hosts]
    run_nodes(nodes, stopping)
    return 0


def run_nodes(nodes: list[Node], stopping: Event) -> None:
    """Run the nodes until ``stopping`` is set; one that has ended is started again."""
    running = {node.name: _started(node) for node in nodes}
    try:
        while not stopping.wait(_POLL_S):
            for node in nodes:
                if (code := running[node.name].poll()) is not None:
                    click.echo(f"{node.name} has ended with exit code {code}; started again")
                    stopping.wait(_PAUSE_S)
                    running[node.name] = _started(node)
    finally:
        end(list(running.values()))


def _master(port: int, web_port: int) -> Node:
    address = ("--host", LOOPBACK, "--port", str(port))
    # Its page tells which workers there are. Its second way in, which has a fixed port, is not
    # needed.
    return Node(
        name="master",
        argv=_program(_MASTER, *address, "--webui-port", str(web_port)),
        env={**_environment(LOOPBACK), "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"},
    )


def _worker(host: str, port: int, cores: int, work: Path) -> Node:
    """A worker on a host.

    Args:
        host: Its address, which its executors have as well.
        port: Of the master.
        cores: That it offers.
        work: Where it and its executors keep files.
    """
    address = ("--host", host, "--port", "0", "--webui-port", "0", "--work-dir", str(work))
    offer = ("--cores", str(cores), "--memory", MEMORY, f"spark://{LOOPBACK}:{port}")
    return Node(
        name=f"worker {host}",
        argv=_program(_WORKER, *address, *offer),
        env={
            **_environment(host),
            "SPARK_WORKER_OPTS": _CLEANUP,
            "SPARK_LOCAL_DIRS": str(work / "tmp"),
        },
    )


def _program(name: str, *options: str) -> tuple[str, ...]:
    return (str(spark_home() / "bin" / "spark-class"), name, *options)


def _environment(host: str) -> dict[str, str]:
    # A Spark that is configured for something else is not meant.
    inherited = {n: v for n, v in os.environ.items() if not n.startswith("SPARK_")}
    return {
        **inherited,
        **JAVA_ENVIRONMENT,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
    }


def _started(node: Node) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(node.argv, env=dict(node.env))


if __name__ == "__main__":
    sys.exit(main())
