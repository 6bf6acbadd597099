"""The Kafka broker of one stack: a single node, broker and controller in one (KRaft)."""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from tally.spark.java import JAVA_ENVIRONMENT, java
from tally_local.stack.home import write_private
from tally_local.stack.one_shot import run
from tally_local.stack.ports import LOOPBACK, is_free
from tally_local.stack.processes import Command, Processes
from tally_local.stack.server import SERVERS, Part, Server

STARTED = b"Kafka Server started"
"""Logged once the broker is registered, unfenced and takes requests."""
FORMAT_TIMEOUT_S = 60

LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = [%d] %p %m (%c)%n
"""


class KafkaServer(Server):
    """A broker with its data in ``folder``; it listens on the loopback address only."""

    part = Part.KAFKA
    ports = ("kafka", "kafka_controller")
    start_timeout_s = 300.0  # after a kill it reads every partition's log again

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Write the configuration; format an empty log folder with a new cluster id."""
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        write_private(self.folder / "log4j2.properties", LOG4J)
        config = self.folder / "server.properties"
        if not self.data.is_dir():
            self._format(config, ports)
        write_private(config, properties(ports, data=self.data))
        return Command(
            argv=(*self._java(), "kafka.Kafka", str(config)),
            cwd=self.folder,
            env={**os.environ, **JAVA_ENVIRONMENT},
        )

    def is_ready(self, ports: Mapping[str, int]) -> bool:
        """Whether the broker has logged that it has started, and listens."""
        # Anywhere in the log: with many partitions there are many lines before it.
        log = Processes(self.layout).log(self.part)
        return log.exists() and STARTED in log.read_bytes() and not is_free(ports["kafka"])

    def _java(self) -> tuple[str, ...]:
        return (
            java(),
            *("-Xmx512m", "-XX:-UsePerfData"),
            f"-Djava.io.tmpdir={self.folder / 'tmp'}",
            f"-Dlog4j2.configurationFile={(self.folder / 'log4j2.properties').as_uri()}",
            *("-cp", f"{SERVERS.folder('kafka', self.layout.downloads)}/*"),
        )

    def _format(self, config: Path, ports: Mapping[str, int]) -> None:
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        write_private(config, properties(ports, data=new))
        run(
            [
                *(*self._java(), "kafka.tools.StorageTool", "format"),
                # 16 random bytes, as Kafka writes an id; alone it could look like an option.
                *(f"--cluster-id={secrets.token_urlsafe(16)}", "--config", str(config)),
            ],
            what=f"Kafka could not format {new}",
            next_step="read the output above",
            timeout_s=FORMAT_TIMEOUT_S,
            environment=JAVA_ENVIRONMENT,
        )
        new.replace(self.data)


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
        # One node keeps one copy of everything.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A killed broker can register again only after its previous lease has expired.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
    }
    # Java escapes backslashes and what is not ASCII as JSON does.
    return "".join(f"{name}={json.dumps(str(value))[1:-1]}\n" for name, value in values.items())
