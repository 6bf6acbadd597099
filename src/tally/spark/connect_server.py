"""How a Spark Connect server is started that counts for Tally."""

import os
import sys
from pathlib import Path
from typing import Final

from tally.config.servers import SparkSettings
from tally.spark.connect import REDACTION, REDACTION_KEY
from tally.spark.jars import spark_home
from tally.spark.java import (
    JAVA_ENVIRONMENT,
    JAVA_OPTIONS,
    LOOPBACK,
    THROUGHPUT,
    beside,
    with_archive,
    with_logging,
)
from tally.spark.keeper import STUCK_S
from tally.spark.session import is_local, session_options

# Spark keeps the history of 1,000 queries with their plans, although nothing shows it: 60 MB.
_SHORT_HISTORY: Final = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.connect.ui.retainedSessions": "50",
    "spark.sql.connect.ui.retainedStatements": "50",
}

_DAEMON: Final = "tally.spark.python_daemon"
_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - the name of a variable

OWN: Final = frozenset({"SPARK_HOME", _TOKEN_VARIABLE})
"""Variables of Spark that :func:`server_environment` sets."""
_OF_CLIENTS: Final = frozenset({"SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE_ENABLED"})


def server_command(
    settings: SparkSettings,
    *,
    port: int,
    scratch: Path,
    memory: str,
    stuck_s: int = STUCK_S,
) -> list[str]:
    """The command line of a server, without a secret.

    Args:
        settings: Spark's master for the server, the connector's jars, and further configuration.
        port: Where it listens on the loopback address: Spark's server speaks no TLS, and PySpark
            sends a token without TLS to ``localhost`` alone.
        scratch: A folder for its temporary files.
        memory: Its heap, in Java's notation.
        stuck_s: Seconds that a cancelled task may go on, or the work for a driver that is gone.

    Raises:
        JarsMissingError: The connector's jars are not there.
        PackageMissingError: PySpark is not installed.
    """
    # Without memory nothing is sure any more: the JVM ends, and its keeper starts another one.
    flags = f'{beside(THROUGHPUT)} -XX:+ExitOnOutOfMemoryError "-Djava.io.tmpdir={scratch}"'
    conf = {
        REDACTION_KEY: REDACTION,
        JAVA_OPTIONS: with_logging(flags),
        "spark.local.dir": str(scratch),
        "spark.python.daemon.module": _DAEMON,
        # Reports tasks that go on after they were cancelled: the keeper reads it in the log.
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": f"{stuck_s}s",
        # By default Spark goes on for a driver that is gone for five minutes.
        "spark.connect.execute.manager.detachedTimeout": f"{stuck_s}s",
        "spark.connect.execute.manager.maintenanceInterval": "10s",
        # No other session finds a worker again, and Spark would keep it for a minute.
        "spark.python.worker.reuse": "false",
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.port.maxRetries": "0",
        **_SHORT_HISTORY,
        **session_options(settings),
    }
    if is_local(settings):
        conf = with_archive(conf, settings)
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", settings.master]
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return [*submit, "--driver-memory", memory, *options, "--class", _SERVER, "spark-internal"]


def server_environment(token: str) -> dict[str, str]:
    """The environment for a server that asks for a token: that of this process.

    Variables that would make a client of it are left out.
    """
    inherited = {name: text for name, text in os.environ.items() if name not in _OF_CLIENTS}
    return {
        **inherited,
        **JAVA_ENVIRONMENT,
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        _TOKEN_VARIABLE: token,
    }
