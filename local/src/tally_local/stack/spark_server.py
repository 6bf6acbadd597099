"""The Spark Connect server of one stack: it is kept warm, so that a batch starts no JVM."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tally.config.servers import SparkSettings
from tally.spark.connect_server import (
    HUNG_S,
    OWN,
    STUCK_S,
    answers,
    server_command,
    server_environment,
)
from tally.spark.jars import CONNECTOR
from tally_local.stack.home import Credentials
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command
from tally_local.stack.server import Part, Server
from tally_local.stack.spark_cluster import CONF

MASTER: Final = "local[2]"
MEMORY: Final = "1g"
HOST: Final = "localhost"
"""The loopback address by the name with which PySpark sends a token without TLS."""


@dataclass(frozen=True, kw_only=True)
class SparkServer(Server):
    """A Spark Connect server on the loopback address that asks for a token.

    Its process is a keeper, which starts the JVM again when it has ended, no longer answers, or has
    a task that goes on after it was cancelled.
    """

    cluster: str | None = None
    """The master of the cluster on which it counts; in its own JVM when None."""
    hung_s: float = HUNG_S
    """Seconds without an answer after which the JVM is replaced."""
    stuck_s: int = STUCK_S
    """Seconds that a cancelled task may go on before the JVM is replaced, and the work for a driver
    that is gone before it is cancelled."""

    part = Part.SPARK
    ports = ("spark",)
    start_timeout_s = 240.0
    stop_timeout_s = 20.0

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Make the folder for its temporary files."""
        token = Credentials.of(self.layout.credentials).spark_token
        environment = server_environment(token)
        scratch = self.folder / "tmp"
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        jars = CONNECTOR.folder("spark", self.layout.downloads)
        conf = dict(CONF) if self.cluster else {}
        server = server_command(
            SparkSettings(master=self.cluster or MASTER, jars_dir=jars, conf=conf),
            port=ports["spark"],
            scratch=scratch,
            memory=MEMORY,
            stuck_s=self.stuck_s,
        )
        keep = ("--port", str(ports["spark"]), "--hung-s", str(self.hung_s))
        return Command(
            argv=(sys.executable, "-m", "tally.spark.connect_server", *keep, "--", *server),
            cwd=self.folder,
            env={
                # A Spark that is configured for something else is not meant.
                **{n: v for n, v in environment.items() if n in OWN or not n.startswith("SPARK_")},
                "SPARK_LOCAL_IP": LOOPBACK,
            },
        )

    def is_ready(self, ports: Mapping[str, int]) -> bool:
        """Whether it answers; nobody else listens on a port that was just free."""
        return answers(ports["spark"])

    @classmethod
    def address(cls, ports: Mapping[str, int]) -> str:
        """The address for ``spark.master``."""
        return f"sc://{HOST}:{ports['spark']}"
