"""The standalone Spark cluster of one stack: a master, and two workers on hosts of their own."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tally_local.stack.pages import page_of
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command, Record
from tally_local.stack.server import Part

WORKERS: Final = ("127.0.0.2", "127.0.0.3")
"""The workers' hosts: by them Spark's speculation and exclusion tell workers apart."""
CORES: Final = 2
"""Of each worker: room for two applications that take one core of each."""

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
        hosts: Addresses of the workers.
        cores: Of each worker.
    """

    part = Part.CLUSTER
    ports = ("cluster", "cluster-web")
    start_timeout_s = 120.0
    stop_timeout_s = 30.0

    def __init__(self, *, folder: Path, hosts: Sequence[str] = WORKERS, cores: int = CORES) -> None:
        self._folder = folder
        self._hosts = hosts
        self._cores = cores

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Name the program that starts the nodes."""
        program = (sys.executable, "-m", "tally_local.stack.cluster_nodes")
        own = ("--port", str(ports["cluster"]), "--web-port", str(ports["cluster-web"]))
        workers = ("--folder", str(self._folder), "--cores", str(self._cores), *self._hosts)
        return Command(
            argv=(*program, *own, *workers),
            cwd=self._folder,
            env=dict(os.environ),
        )

    def is_ready(self, ports: Mapping[str, int], start: Record) -> bool:  # noqa: ARG002
        """Whether all workers have told the master of themselves."""
        page = page_of(f"http://{LOOPBACK}:{ports['cluster-web']}/json/")
        if page is None:
            return False
        # By host: a worker that was slow to get an answer may have told the master twice.
        alive = {worker["host"] for worker in page["workers"] if worker["state"] == "ALIVE"}
        return alive == set(self._hosts)

    def address(self, ports: Mapping[str, int]) -> str:
        """The address for ``spark.master``."""
        return cluster_master(ports)


def cluster_master(ports: Mapping[str, int]) -> str:
    """The address of the stack's cluster, for ``spark.master``."""
    return f"spark://{LOOPBACK}:{ports['cluster']}"
