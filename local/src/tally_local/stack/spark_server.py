"""The Spark Connect server of one stack: it is kept warm, so that a batch starts no JVM."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tally.config.servers import SparkSettings
from tally.spark.class_archive import with_archive
from tally.spark.driver_log import JAVA_OPTIONS, with_logging
from tally.spark.java import JAVA_ENVIRONMENT
from tally.spark.packages import spark_home
from tally_local.stack.credentials import Credentials
from tally_local.stack.keeper import HUNG_S, answers
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command, Record
from tally_local.stack.server import Part

MASTER: Final = "local[2]"
MEMORY: Final = "1g"
STUCK_S: Final = 60
HOST: Final = "localhost"
"""The loopback address by the name with which PySpark sends a token without TLS."""
_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable


class SparkServer:
    """A Spark Connect server on the loopback address that asks for a token.

    Its process is a keeper, which starts the JVM again when it has ended, no longer answers, or has
    a task that goes on after it was cancelled.

    Args:
        folder: Its files.
        jars: The connector's jars.
        credentials: The stack's, the token among them.
        hung_s: Seconds without an answer after which the JVM is replaced.
        stuck_s: Seconds that a cancelled task may go on before the JVM is replaced.
    """

    part = Part.SPARK
    ports = ("spark",)
    start_timeout_s = 240.0
    stop_timeout_s = 20.0

    def __init__(
        self,
        *,
        folder: Path,
        jars: Path,
        credentials: Credentials,
        hung_s: float = HUNG_S,
        stuck_s: int = STUCK_S,
    ) -> None:
        self._folder = folder
        self._jars = jars
        self._credentials = credentials
        self._hung_s = hung_s
        self._stuck_s = stuck_s

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Make the folder for its temporary files."""
        home = spark_home()
        scratch = self._folder / "tmp"
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        port = str(ports["spark"])
        keep = ("-m", "tally_local.stack.keeper", "--port", port, "--hung-s", str(self._hung_s))
        submit = [str(home / "bin" / "spark-submit"), "--master", MASTER, "--driver-memory", MEMORY]
        for key, value in self._conf(port, scratch).items():
            submit += ["--conf", f"{key}={value}"]
        inherited = {n: v for n, v in os.environ.items() if not n.startswith("SPARK_")}
        return Command(
            argv=(sys.executable, *keep, "--", *submit, "--class", _SERVER, "spark-internal"),
            cwd=self._folder,
            env={
                **inherited,
                **JAVA_ENVIRONMENT,
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": LOOPBACK,
                "PYSPARK_PYTHON": sys.executable,
                _TOKEN_VARIABLE: self._credentials.spark_token,
            },
        )

    def _conf(self, port: str, scratch: Path) -> dict[str, str]:
        from tally.spark.connect import REDACTION, REDACTION_KEY  # noqa: PLC0415 - Spark is heavy
        from tally.spark.session import THROUGHPUT, beside, session_options  # noqa: PLC0415 - as above

        settings = SparkSettings(master=MASTER, jars_dir=self._jars)
        # Without memory nothing is sure any more: the JVM ends, and the keeper starts another one.
        flags = f'{beside(THROUGHPUT)} -XX:+ExitOnOutOfMemoryError "-Djava.io.tmpdir={scratch}"'
        conf = {
            **session_options(settings),
            REDACTION_KEY: REDACTION,
            JAVA_OPTIONS: with_logging(flags),
            "spark.local.dir": str(scratch),
            # Tells of tasks that go on after they were cancelled: the keeper reads it in the log.
            "spark.task.reaper.enabled": "true",
            "spark.task.reaper.killTimeout": f"{self._stuck_s}s",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": port,
            "spark.connect.grpc.port.maxRetries": "0",
        }
        return with_archive(conf, settings)

    def is_ready(self, ports: Mapping[str, int], start: Record) -> bool:  # noqa: ARG002
        """Whether it answers; nobody else listens on a port that was just free."""
        return answers(ports["spark"])

    def address(self, ports: Mapping[str, int]) -> str:
        """The address for ``spark.master``."""
        return master(ports)


def master(ports: Mapping[str, int]) -> str:
    """The address of the stack's server, for ``spark.master``."""
    return f"sc://{HOST}:{ports['spark']}"
