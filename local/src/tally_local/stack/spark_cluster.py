"""The standalone Spark cluster of one stack: a master, and two workers on hosts of their own.

As a program this runs its nodes, and starts one again that has ended:
``python -m tally_local.stack.spark_cluster PORT WEB_PORT FOLDER``. SIGTERM ends all nodes, and then
the program.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Final

import click

from tally.spark.connect_server import end, stop_on_signals
from tally.spark.jars import spark_home
from tally.spark.java import JAVA_ENVIRONMENT
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command
from tally_local.stack.server import Part, Server, page_of

WORKERS: Final = ("127.0.0.2", "127.0.0.3")
"""The workers' hosts: by them Spark's speculation and exclusion tell workers apart."""
CORES: Final = 2
"""Of each worker: room for two applications that take one core of each."""

MEMORY: Final = "3g"
"""Of each worker, for the executors that it starts."""
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
# Files of finished applications, a copy of the connector's jars each, are deleted after an hour.
_CLEANUP: Final = (
    "-Dspark.worker.cleanup.enabled=true -Dspark.worker.cleanup.interval=600"
    " -Dspark.worker.cleanup.appDataTtl=3600"
)
_POLL_S: Final = 1.0

CONF: Final[Mapping[str, str]] = {
    # One core of each worker, so that two applications find room at the same time.
    "spark.executor.cores": "1",
    "spark.cores.max": str(len(WORKERS)),
    # Executors reach the driver, and nobody else does.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
}
"""Spark's configuration for an application on the cluster."""


class SparkCluster(Server):
    """Master and workers; every user of this machine can run programs on them."""

    part = Part.CLUSTER
    ports = ("cluster", "cluster-web")
    start_timeout_s = 120.0

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Name the program that starts the nodes."""
        program = (sys.executable, "-m", "tally_local.stack.spark_cluster")
        own = (str(ports["cluster"]), str(ports["cluster-web"]), str(self.folder))
        return Command(argv=(*program, *own), cwd=self.folder, env=dict(os.environ))

    def is_ready(self, ports: Mapping[str, int]) -> bool:
        """Whether all workers have registered with the master."""
        page = page_of(f"http://{LOOPBACK}:{ports['cluster-web']}/json/")
        if page is None:
            return False
        # By host: a worker whose answer came late may have registered twice.
        alive = {worker["host"] for worker in page["workers"] if worker["state"] == "ALIVE"}
        return alive == set(WORKERS)

    @classmethod
    def address(cls, ports: Mapping[str, int]) -> str:
        """The address for ``spark.master``."""
        return f"spark://{LOOPBACK}:{ports['cluster']}"


def _start(program: str, host: str, options: Mapping[str, str], *arguments: str) -> "Popen[bytes]":
    # A Spark that is configured for something else is not meant.
    inherited = {n: v for n, v in os.environ.items() if not n.startswith("SPARK_")}
    home = spark_home()
    return Popen(
        [str(home / "bin" / "spark-class"), program, "--host", host, *arguments],
        env={
            **inherited,
            **JAVA_ENVIRONMENT,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            **options,
        },
    )


def main(port: str, web_port: str, folder: str) -> None:
    """Run the nodes until SIGTERM; one that has ended is started again."""
    # Its page lists the workers. Its REST server, which has a fixed port, is not needed.
    # A master that was started again knows its applications, and gives them new executors.
    recovery = Path(folder, "recovery")
    shutil.rmtree(recovery, ignore_errors=True)  # those of an earlier cluster are gone
    flags = (
        "-Dspark.master.rest.enabled=false -Dspark.deploy.recoveryMode=FILESYSTEM"
        f' "-Dspark.deploy.recoveryDirectory={recovery}"'
    )
    options = {"SPARK_MASTER_OPTS": flags}
    where = ("--port", port, "--webui-port", web_port)
    nodes = {"master": partial(_start, _MASTER, LOOPBACK, options, *where)}
    for host in WORKERS:  # its executors have its address as well
        work = Path(folder, host)
        options = {"SPARK_WORKER_OPTS": _CLEANUP, "SPARK_LOCAL_DIRS": str(work / "tmp")}
        where = ("--port", "0", "--webui-port", "0")
        own = ("--work-dir", str(work), "--cores", str(CORES), "--memory", MEMORY)
        known = f"spark://{LOOPBACK}:{port}"
        nodes[f"worker {host}"] = partial(_start, _WORKER, host, options, *where, *own, known)
    stopping = stop_on_signals()
    running = {name: start() for name, start in nodes.items()}
    try:
        while not stopping.wait(_POLL_S):
            for name, start in nodes.items():
                if (code := running[name].poll()) is not None:
                    click.echo(f"{name} has ended with exit code {code}; started again")
                    running[name] = start()
    finally:
        end(list(running.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
