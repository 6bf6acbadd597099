"""The Kafka broker of one stack: a single node, broker and controller in one (KRaft)."""

import base64
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tally.errors import StackError
from tally.spark.java import JAVA_ENVIRONMENT, java
from tally_local.stack.home import write_private
from tally_local.stack.one_shot import run
from tally_local.stack.ports import LOOPBACK, is_listening
from tally_local.stack.processes import Command, Record
from tally_local.stack.server import Part, Server

STARTED = b"Kafka Server started"
"""Logged once the broker is registered, unfenced and takes requests."""
HEAP = "-Xmx512m"
FORMAT_TIMEOUT_S = 60

LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = [%d] %p %m (%c)%n
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaServer(Server):
    """A broker with its data in ``folder``; it listens on the loopback address only."""

    folder: Path
    """Its files."""
    jars: Path
    """Those of the stack's servers."""

    part = Part.KAFKA
    ports = ("kafka", "kafka_controller")
    start_timeout_s = 300.0  # after a kill it reads every partition's log again

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Write the configuration; format an empty log folder with a new cluster id."""
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        write_private(self.folder / "log4j2.properties", LOG4J)
        if not self._data.is_dir():
            self._format(ports)
        config = self.folder / "server.properties"
        write_private(config, properties(ports, data=self._data))
        return Command(
            argv=(*self._java(HEAP), "kafka.Kafka", str(config)),
            cwd=self.folder,
            env={**os.environ, **JAVA_ENVIRONMENT},
        )

    def is_ready(self, ports: Mapping[str, int], start: Record) -> bool:
        """Whether the broker has logged that it has started, and listens."""
        # Anywhere in the log: with many partitions there are many lines before it.
        log = Path(start.log)
        return log.exists() and STARTED in log.read_bytes() and is_listening(ports["kafka"])

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _java(self, *options: str) -> tuple[str, ...]:
        if not self.jars.is_dir():
            raise StackError("Kafka's jars are not installed", next_step="tally up installs them")
        return (
            java(),
            *options,
            "-XX:-UsePerfData",
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.properties').as_uri()}",
            *("-cp", f"{self.jars}/*"),
        )

    def _format(self, ports: Mapping[str, int]) -> None:
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        config = self.folder / "format.properties"
        write_private(config, properties(ports, data=new))
        run(
            [
                *(*self._java(), "kafka.tools.StorageTool", "format"),
                *("--cluster-id", new_cluster_id(), "--config", str(config)),
            ],
            what=f"Kafka could not format {new}",
            next_step="read the output above",
            timeout_s=FORMAT_TIMEOUT_S,
            environment=JAVA_ENVIRONMENT,
        )
        config.unlink()
        new.replace(self._data)


def new_cluster_id() -> str:
    """A random id as Kafka writes them; it never looks like an option."""
    text = "-"
    while text.startswith("-"):
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text


def properties(ports: Mapping[str, int], *, data: Path) -> str:
    """The broker's configuration."""
    broker, controller = (f"{LOOPBACK}:{ports[name]}" for name in KafkaServer.ports)
    values = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{broker}",
        "log.dirs": data,
        # A request for a topic must not create it.
        "auto.create.topics.enable": "false",
        "delete.topic.enable": "true",
        # One node keeps one copy of everything.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "min.insync.replicas": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker can register again only after its previous lease has expired.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in values.items())


def _escaped(value: str) -> str:
    """A value for java.util.Properties: ASCII, other characters as escaped UTF-16 code units."""
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)
