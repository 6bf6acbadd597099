"""The local stack: Kafka, MySQL, Spark and Airflow in one folder, without root and Docker."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tally.errors import StackError
from tally.spark.jars import CONNECTOR, Announce
from tally_local.stack.addresses import write_addresses
from tally_local.stack.airflow_server import AirflowServer
from tally_local.stack.home import Credentials, Layout
from tally_local.stack.interruption import interruptible
from tally_local.stack.kafka_server import KafkaServer
from tally_local.stack.lock import held
from tally_local.stack.mysql_program import install_program
from tally_local.stack.mysql_server import MySQLServer
from tally_local.stack.ports import Ports, is_free
from tally_local.stack.processes import Processes
from tally_local.stack.server import SERVERS, Part, PartState, PartStatus, Server
from tally_local.stack.spark_cluster import SparkCluster
from tally_local.stack.spark_server import SparkServer

ALL_PARTS = tuple(Part)
USUAL_PARTS = tuple(part for part in Part if part is not Part.CLUSTER)
"""Those that are started where none is named."""
POLL_S = 0.1
WATCH_S = 1.0
PORT_TRIES = 3


class Stack:
    """The servers of one home folder; any number of processes may hold one at the same time.

    Args:
        project: The checkout. Downloads lie in its hidden folder, shared by all its stacks.
        home: Data, logs, ports and passwords of this stack; the hidden folder itself by default.
        announce: Called with each line of progress.
        mysql_options: Further options of MySQL's program; for tests.
        airflow_options: Further options of Airflow, by section; for tests.
        servers: Makes the server of a part; when None the real ones, which are installed first.
    """

    def __init__(
        self,
        *,
        project: Path,
        home: Path | None = None,
        announce: Announce = lambda _: None,
        mysql_options: Sequence[str] = (),
        airflow_options: Mapping[str, Mapping[str, object]] = MappingProxyType({}),
        servers: Callable[[Part], Server] | None = None,
    ) -> None:
        self.layout = Layout(project, home)
        self._mysql_options = mysql_options
        self._airflow_options = airflow_options
        self._announce = announce
        self._servers = servers
        self._ports = Ports(self.layout.ports)
        self.processes = Processes(self.layout)
        """Those of each part, by its name."""

    @property
    def jars_dir(self) -> Path:
        """The jars of Spark's Kafka connector."""
        return CONNECTOR.folder("spark", self.layout.downloads)

    @property
    def kafka_jars_dir(self) -> Path:
        """The jars of the broker and its tools."""
        return SERVERS.folder("kafka", self.layout.downloads)

    def credentials(self) -> Credentials:
        """The passwords of this stack; made on the first call."""
        return Credentials.of(self.layout.credentials)

    def install(self) -> None:
        """Download what is not there yet; a second call downloads nothing.

        Raises:
            StackError: Java is missing or too old, a download failed or a checksum is wrong.
        """
        if self._servers is not None:
            return
        with held(self.layout.downloads / "install.lock", self._announce):
            CONNECTOR.install("spark", self.layout.downloads, self._announce)
            SERVERS.install("kafka", self.layout.downloads, self._announce)
            install_program(self.layout.downloads, self._announce)

    def up(self, parts: Sequence[Part] = USUAL_PARTS) -> list[PartStatus]:
        """Start the ``parts`` that do not run, with the data they had; return when all are ready.

        Raises:
            StackError: A part crashed or was not ready in time (its last log lines are in the
            message); parts that were started before it continue to run.
        """
        self.install()
        self.layout.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held(self.layout.lock, self._announce):
            if Part.CLUSTER in parts and not self._runs(Part.CLUSTER) and self._down(Part.SPARK):
                parts = (*parts, Part.SPARK)  # to count on the cluster from now on
            # One after the other: where Spark counts depends on whether the cluster was started.
            wanted = [part for part in ALL_PARTS if part in parts]
            for part in wanted:
                if not self._runs(part):
                    self._start(self._server(part))
            for part in wanted:
                self._wait_until_ready(self._server(part))
        return [status for status in self.status() if status.part in parts]

    def down(self, parts: Sequence[Part] = ALL_PARTS) -> list[Part]:
        """Stop the ``parts`` and all that they started, last first; return those that still ran.

        Stops exactly the processes that were started from this home, by any command.
        """
        if not self.layout.home.is_dir():
            return []
        with held(self.layout.lock, self._announce):
            if Part.CLUSTER in parts and self._has_cluster():
                parts = (*parts, Part.SPARK)  # it counts on the cluster
            return [part for part in reversed(ALL_PARTS) if part in parts and self._down(part)]

    def status(self) -> list[PartStatus]:
        """The status of each part, of the cluster once it was started; sends no request."""
        parts = ALL_PARTS if self._has_cluster() else USUAL_PARTS
        return [self._status(self._server(part)) for part in parts]

    def watch(self, parts: Sequence[Part] = USUAL_PARTS) -> None:
        """Return when another command has stopped one of the ``parts``.

        Raises:
            StackError: One crashed; its last log lines are in the message.
        """
        while len(self.stopped(parts)) < len(set(parts)):
            time.sleep(WATCH_S)

    def stopped(self, parts: Sequence[Part] = USUAL_PARTS) -> list[Part]:
        """Those of the ``parts`` that another command has stopped; waits while it is stopping them.

        Raises:
            StackError: One crashed; its last log lines are in the message.
        """
        states = self._states(parts)
        if PartState.CRASHED in states.values():
            with held(self.layout.lock, self._announce):
                states = self._states(parts)
        for part, state in states.items():
            if state is PartState.CRASHED:
                raise self._crash(part, "crashed")
        return [part for part, state in states.items() if state is PartState.STOPPED]

    def _states(self, parts: Sequence[Part]) -> dict[Part, PartState]:
        return {part: self._status(self._server(part)).state for part in parts}

    @contextmanager
    def foreground(self, parts: Sequence[Part] = USUAL_PARTS) -> Iterator[list[PartStatus]]:
        """Run the ``parts`` inside the block and stop them after it.

        Ctrl-C and SIGTERM raise KeyboardInterrupt inside the block; while the stack is stopped they
        are ignored. Parts that ran before are stopped as well.
        """
        with interruptible():
            try:
                yield self.up(parts)
            finally:
                with interruptible(signal.SIG_IGN):
                    self.down(parts)

    def _server(self, part: Part) -> Server:
        if self._servers is not None:
            return self._servers(part)
        if part is Part.MYSQL:
            return MySQLServer(layout=self.layout, options=self._mysql_options)
        if part is Part.SPARK:
            ports = self._ports.remembered()
            cluster = SparkCluster.address(ports) if self._has_cluster() else None
            return SparkServer(layout=self.layout, cluster=cluster)
        if part is Part.AIRFLOW:
            return AirflowServer(layout=self.layout, options=self._airflow_options)
        return (KafkaServer if part is Part.KAFKA else SparkCluster)(layout=self.layout)

    def _has_cluster(self) -> bool:
        """Whether the cluster was started, and not stopped since."""
        return self.processes.record(Part.CLUSTER) is not None

    def _runs(self, part: Part) -> bool:
        return self.processes.main_process(part) is not None

    def _wait_until_ready(self, server: Server) -> None:
        """Wait; a server that has lost a port to another process is started again."""
        tries, deadline = 1, time.monotonic() + server.start_timeout_s
        while not server.is_ready(ports := self._ports.remembered()):
            if time.monotonic() > deadline:
                what = f"was not ready after {server.start_timeout_s:.0f} s"
                raise self._crash(server.part, what)
            if not self._runs(server.part):
                # Another process may take a port after the check and before the server binds it.
                if tries == PORT_TRIES or all(is_free(ports[name]) for name in server.ports):
                    raise self._crash(server.part, "ended while it started")
                tries, deadline = tries + 1, time.monotonic() + server.start_timeout_s
                self._start(server)
            time.sleep(POLL_S)
        self._announce(f"{server.part}: ready at {server.address(ports)}")

    def _start(self, server: Server) -> None:
        self.processes.stop(server.part, timeout_s=server.stop_timeout_s)  # left by a crash
        before = self._ports.remembered()
        ports = self._ports.choose(server.ports)
        for name, port in ports.items():
            if before.get(name, port) != port:
                self._announce(
                    f"{server.part}: another process has taken port {before[name]} ({name}); from "
                    f"now on it is {port}"
                )
        self._announce(f"{server.part}: starting")
        (self.layout.home / server.part).mkdir(mode=0o700, exist_ok=True)
        command = server.prepare(ports)
        self._write_addresses(server.part)
        self.processes.start(server.part, command)

    def _down(self, part: Part) -> bool:
        if self._runs(part):
            self._announce(f"{part}: stopping")
        did_run = self.processes.stop(part, timeout_s=self._server(part).stop_timeout_s)
        if part in (Part.SPARK, Part.CLUSTER) and did_run:
            self._write_addresses()
        return did_run

    def _status(self, server: Server) -> PartStatus:
        part = server.part
        process = self.processes.main_process(part)
        ports = self._ports.remembered()
        not_running = PartState.CRASHED if self.processes.record(part) else PartState.STOPPED
        return PartStatus(
            part=part,
            state=PartState.RUNNING if process else not_running,
            address=server.address(ports) if server.ports[0] in ports else None,
            pid=process.pid if process else None,
        )

    def _crash(self, part: Part, what: str) -> StackError:
        log = self.processes.log(part)
        tail = "\n".join(f"    {line}" for line in self.processes.log_tail(part))
        return StackError(
            f"{part} {what}; the last lines of its log:\n{tail}",
            next_step=f"read {log}, then tally up again",
        )

    def _write_addresses(self, starting: Part | None = None) -> None:
        """Write the servers' addresses for Tally and Airflow.

        Those of Spark only from their start to their stop: without a server, each batch has a
        Spark of its own, on the cluster if there is one.
        """
        ports = self._ports.remembered()
        for part in (Part.SPARK, Part.CLUSTER):
            if starting is not part and self.processes.record(part) is None:
                ports.pop(part, None)
        credentials = self.credentials()
        write_addresses(self.layout, ports=ports, credentials=credentials, jars=self.jars_dir)
