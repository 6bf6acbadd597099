"""A Spark Connect server for tests, from the installed PySpark."""

import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tally.config.servers import SparkSettings
from tally.spark.java import with_archive
from tests.spark_submit import SPARK_HOME, spark_environment
from tests.waiting import wait_until

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
    """Start a server that asks for a token, with these jars of the connector, and stop it."""
    token, events, log = secrets.token_hex(8), folder / "events", folder / "log"
    events.mkdir()
    recorded = {"spark.eventLog.enabled": str(record_events).lower()}
    conf = CONF | recorded | {"spark.eventLog.dir": events.as_uri()}
    if jars is not None:
        conf["spark.driver.extraClassPath"] = f"{jars}/*"
        conf = with_archive(conf, jars)
    argv = [
        *(str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"),
        *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
    ]
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

        def port() -> str:
            text = log.read_text(encoding="utf-8", errors="replace")
            assert process.poll() is None, text[-3000:]
            return next(iter(READY.findall(text)), "")

        try:
            yield ConnectServer(
                port=int(wait_until(port, START_S, pause_s=0.1)),
                token=token,
                folder=folder,
                process=psutil.Process(process.pid),
            )
        finally:
            process.kill()
