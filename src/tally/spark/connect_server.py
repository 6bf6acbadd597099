"""A Spark Connect server that counts for Tally: how it is started, and kept running.

Its keeper starts it again when it has ended, hangs, or has a stuck task.

Usage: ``python -m tally.spark.connect_server --port PORT [--hung-s SECONDS] -- PROGRAM
[ARGUMENT]…``, where SIGTERM ends the server, and then the keeper.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

import click

from tally.config.servers import SparkSettings
from tally.spark import java
from tally.spark.jars import spark_home

HUNG_S: Final = 60.0
"""Seconds without an answer after which a server counts as hung."""
STUCK_S: Final = 60
"""Seconds that a cancelled task may go on before the server, or its executor, is replaced."""
STUCK: Final = b"could not be stopped within"
"""What Spark's log reports of a task that goes on after it was cancelled, as a regular expression
may: Java's heed no interrupt. Spark itself then ends an executor, but not a driver that is its
own."""
CHECK_S: Final = 2.0
ANSWER_S: Final = 5.0
STOP_S: Final = 10.0
PAUSE_MAX_S: Final = 30.0
_START_S: Final = 180.0


# Spark keeps the history of 1,000 queries with their plans, although nothing shows it: 60 MB.
_SHORT_HISTORY: Final = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.sql.connect.ui.retainedSessions": "50",
    "spark.sql.connect.ui.retainedStatements": "50",
}

_FAIR_SHARES: Final = Path(__file__).with_name("fair_shares.xml")
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
    from tally.spark import connect, session  # noqa: PLC0415 - Spark is heavy

    # Without memory nothing is sure any more: the JVM ends, and its keeper starts another one.
    flags = (
        f'{java.beside(java.THROUGHPUT)} -XX:+ExitOnOutOfMemoryError "-Djava.io.tmpdir={scratch}"'
    )
    conf = {
        connect.REDACTION_KEY: connect.REDACTION,
        java.JAVA_OPTIONS: flags,
        java.LOCAL_DIR: str(scratch),
        "spark.python.daemon.module": _DAEMON,
        # Reports tasks that go on after they were cancelled: the keeper reads it in the log.
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": f"{stuck_s}s",
        # By default Spark goes on for a driver that is gone for seven minutes: two until an answer
        # ends that nobody takes, and five.
        "spark.connect.execute.reattachable.senderMaxStreamDuration": f"{stuck_s}s",
        "spark.connect.execute.manager.detachedTimeout": f"{stuck_s}s",
        "spark.connect.execute.manager.maintenanceInterval": "10s",
        # No other session finds a worker again, and Spark would keep it for a minute.
        "spark.python.worker.reuse": "false",
        # A minute does not wait behind the tasks of another pipeline's backlog.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": f"file:{_FAIR_SHARES}",  # not where HDFS is the default
        "spark.connect.grpc.binding.address": java.LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.port.maxRetries": "0",
        **_SHORT_HISTORY,
        **session.session_options(settings),
    }
    conf = java.with_logging(conf)
    if session.is_local(settings):
        conf = java.with_archive(conf, settings.jars_dir)
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
        **java.JAVA_ENVIRONMENT,
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        _TOKEN_VARIABLE: token,
    }


def main() -> None:
    """Keep a server until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hung-s", type=float, default=HUNG_S)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    keep(arguments.command, arguments.port, hung_s=arguments.hung_s)


def stop_on_signals() -> Event:
    """What SIGTERM and SIGINT set from now on, instead of ending the process."""
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def keep(
    command: list[str],
    port: int,
    *,
    hung_s: float = HUNG_S,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program until SIGTERM or SIGINT; it is started again whenever it has ended.

    What it writes to its standard error is passed on.

    Args:
        command: The program, which listens on the loopback address.
        port: The port on which it answers HTTP/2, as gRPC does.
        hung_s: Seconds without an answer after which it is killed.
        environment: Its environment; this process's by default.
    """
    stopping = stop_on_signals()
    pause_s = 1.0
    while not stopping.is_set():
        began = time.monotonic()
        stuck = Event()
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as server:
            log = Thread(target=_pass_on, args=(server, stuck), daemon=True)
            log.start()
            ended = _watch(server, port, stopping, stuck, hung_s)
            end([server])
            log.join()
        if not stopping.is_set():
            lived_s = time.monotonic() - began
            pause_s = 1.0 if lived_s > _START_S else min(2 * pause_s, PAUSE_MAX_S)
            again = f"it is started again in {pause_s:.0f} s"
            click.echo(f"keeper: {ended} after {lived_s:.0f} s; {again}")
            stopping.wait(pause_s)


def answers(port: int, timeout_s: float = ANSWER_S) -> bool:
    """Whether a server on the loopback address begins a connection of gRPC."""
    import grpc  # noqa: PLC0415 - the command line does without

    with grpc.insecure_channel(f"{java.LOOPBACK}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            return False
    return True


def _pass_on(server: "subprocess.Popen[bytes]", stuck: Event) -> None:
    """Copy a server's log to this process's; ``stuck`` is set when the log reports a stuck task."""
    for line in server.stderr or ():
        with suppress(OSError):  # a full disk: the server must not wait for its log
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
        if STUCK in line:
            stuck.set()


def _watch(
    server: "subprocess.Popen[bytes]", port: int, stopping: Event, stuck: Event, hung_s: float
) -> str:
    """Return, with the reason, once the server has ended, hangs, is stuck or is to be stopped."""
    patience_s = max(_START_S, hung_s)  # until it has answered once
    last = time.monotonic()
    while not stopping.wait(CHECK_S):
        code = server.poll()
        if code is not None:
            return f"the server has ended with exit code {code}"
        if stuck.is_set():
            return "a task of the server went on after it was cancelled"
        if answers(port):
            last, patience_s = time.monotonic(), hung_s
        elif time.monotonic() - last > patience_s:
            return f"the server has not answered for {patience_s:.0f} s"
    return "stopped"


def end(servers: "Sequence[subprocess.Popen[bytes]]") -> None:
    """End servers with SIGTERM, and those that have not ended some seconds later with SIGKILL."""
    for server in servers:
        server.terminate()
    for server in servers:
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
