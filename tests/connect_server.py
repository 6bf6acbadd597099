"""A Spark Connect server for tests, from the installed PySpark."""

import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tally.config.servers import SparkSettings
from tally.spark.class_archive import with_archive
from tests.spark_submit import SPARK_HOME, spark_environment

START_S = 600
"""The longest start, beside other work on a busy machine."""
READY = re.compile(r"Spark Connect server started at: .*:(\d+)")
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.task.maxDirectResultSize": "64m",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@dataclass(frozen=True, kw_only=True)
class ConnectServer:
    """A running server."""

    port: int
    token: str
    folder: Path
    process: psutil.Process

    @property
    def settings(self) -> SparkSettings:
        """How to reach it, by the name `localhost`: only there is a token sent without TLS."""
        return SparkSettings.model_validate(
            {"master": f"sc://localhost:{self.port}", "connect_token": self.token}
        )

    def events(self) -> str:
        """The events in the server's event log so far."""
        return "".join(p.read_text(encoding="utf-8") for p in (self.folder / "events").iterdir())


@contextmanager
def connect_server(
    folder: Path, jars: Path | None, *, record_events: bool = True
) -> Iterator[ConnectServer]:
    """Start a server that asks for a token, and stop it at the end.

    Args:
        folder: For its log and its event log.
        jars: The folder of the connector; None for a server that does without.
        record_events: Whether it writes the event log.
    """
    token = secrets.token_hex(8)
    (folder / "events").mkdir()
    conf = CONF | {
        "spark.eventLog.enabled": str(record_events).lower(),
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }
    if jars is not None:
        conf["spark.driver.extraClassPath"] = f"{jars}/*"
        conf = with_archive(conf, SparkSettings(jars_dir=jars))
    argv = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    for key, value in conf.items():
        argv += ["--conf", f"{key}={value}"]
    argv += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]

    log = folder / "log"
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            argv,
            cwd=folder,
            env=spark_environment(SPARK_CONNECT_AUTHENTICATE_TOKEN=token),
            stdout=stream,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield ConnectServer(
                port=_port(process, log),
                token=token,
                folder=folder,
                process=psutil.Process(process.pid),
            )
        finally:
            process.kill()


def _port(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline = time.monotonic() + START_S
    while not (ready := READY.search(text := log.read_text(encoding="utf-8", errors="replace"))):
        assert process.poll() is None, text[-3000:]
        assert time.monotonic() < deadline, text[-3000:]
        time.sleep(0.1)
    return int(ready.group(1))
