"""The standalone Spark cluster of one stack: a master, and two workers on hosts of their own."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from tally_local.stack.cluster_nodes import WORKERS
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command, Record
from tally_local.stack.server import Part

CONF: Final[Mapping[str, str]] = {
    # One core of each worker, so that two applications find room at the same time.
    "spark.executor.cores": "1",
    "spark.cores.max": str(len(WORKERS)),
    # Executors reach the driver, and nobody else does.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
"""Spark's configuration for an application on the cluster."""


class SparkCluster:
    """Master and workers; whoever can log in to this machine can run programs on them.

    Args:
        folder: Its files.
    """

    part = Part.CLUSTER
    ports = ("cluster", "cluster-web")
    start_timeout_s = 120.0
    stop_timeout_s = 30.0

    def __init__(self, *, folder: Path) -> None:
        self._folder = folder

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Name the program that starts the nodes."""
        own = ("--port", str(ports["cluster"]), "--web-port", str(ports["cluster-web"]))
        program = (sys.executable, "-m", "tally_local.stack.cluster_nodes")
        return Command(
            argv=(*program, *own, "--folder", str(self._folder)),
            cwd=self._folder,
            env=dict(os.environ),
        )

    def is_ready(self, ports: Mapping[str, int], start: Record) -> bool:  # noqa: ARG002
        """Whether all workers have told the master of themselves."""
        page = f"http://{LOOPBACK}:{ports['cluster-web']}/json/"
        try:
            # This machine's own address: a proxy would not find it.
            answer = httpx.get(page, timeout=5, trust_env=False)
            alive: int = answer.raise_for_status().json()["aliveworkers"]
        except (httpx.HTTPError, ValueError):
            return False
        return alive == len(WORKERS)

    def address(self, ports: Mapping[str, int]) -> str:
        """The address for ``spark.master``."""
        return cluster_master(ports)


def cluster_master(ports: Mapping[str, int]) -> str:
    """The address of the stack's cluster, for ``spark.master``."""
    return f"spark://{LOOPBACK}:{ports['cluster']}"
