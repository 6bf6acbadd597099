"""The system under attack: servers, Airflow, a Spark Connect server, and commands.

Everything is the real thing, in processes of its own: the minute DAG in Airflow, ``tally run`` and
``tally replay``, a broker, a MySQL server. Airflow counts by spark-submit and the commands over a
Spark Connect server; or all of them count on the server that ``tally up`` keeps.
"""

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pyarrow.parquet as pq
import pymysql
from confluent_kafka.admin import AdminClient, NewPartitions

from tally.airflow.policies import REPLAY_SUFFIX
from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.errors import EXIT_RETRYABLE
from tally.kafka.client import Kafka
from tally.mysql.transactions import Database
from tally.set_up.migrate import migrate
from tally_local.demo.airflow_api import AirflowApi
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.chaos.production import SHARED_YEAR
from tests.connect_server import ConnectServer, connect_server
from tests.servers import PROJECT, TALLY

SPARKLESS = "tests.chaos.sparkless"
PROGRAMS = (str(TALLY), SPARKLESS)
PIPELINE = "error_log"
TOPIC = "alog"
FIRST_PARTITIONS = 2
PAUSE_S = 0.5
"""Seconds between two commands of a lane."""
RETRY_PAUSE_S = 3
"""Seconds after a retryable failure, so that commands do not starve the server that starts."""
OUTPUT_CHARS = 3000
"""How much of a command's output is kept."""
COMMAND_S = 1800
"""Seconds after which a command counts as hung; a recount of hours of lines takes minutes."""

# So that the lock of a paused process is not waited for long.
CONFIGURATION = """\
[mysql]
lock_wait_timeout_s = 5
statement_timeout_s = 60
connect_timeout_s = 5

[kafka]
request_timeout_s = 10

[pipelines.error_log]
topics = ["alog"]
line_format = "fixed"
levels = ["ERROR"]
patience_s = 240
max_records_per_partition = 20000
delivery = "{delivery}"
"""


class Companion(threading.Thread):
    """Runs beside the campaign until it is stopped."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._stopping = threading.Event()

    def stop(self, patience_s: float | None = None) -> bool:
        """End it, and wait so long; returns False when it had ended by itself, for an error."""
        lived = self.is_alive()
        self._stopping.set()
        self.join(patience_s)
        return lived


class Lane(Companion):
    """Runs a command of Tally's again and again, each in a process that may be killed."""

    def __init__(
        self, system: "System", name: str, command: Callable[[], Sequence[str] | None]
    ) -> None:
        super().__init__(name)
        self._command, self._system = command, system
        self.process: subprocess.Popen[bytes] | None = None
        self.exits: Counter[int] = Counter()
        self.last_output: dict[int, str] = {}
        """By exit code: the end of what the last such command has written."""

    def run(self) -> None:
        """Until told to stop."""
        pause_s: float = PAUSE_S
        while not self._stopping.wait(pause_s):
            command = self._command()
            if command is None:
                continue
            code = self._call(command)
            pause_s = RETRY_PAUSE_S if code == EXIT_RETRYABLE else PAUSE_S

    def _call(self, command: Sequence[str]) -> int:
        """Run one command to its end; returns its exit code."""
        with (self._system.setup.home / f"{self.name}.log").open("a+b") as output:
            output.write(f"--- {' '.join(command)}\n".encode())
            output.flush()
            begin = output.tell()
            self.process = subprocess.Popen(
                [*self._system.program, *command],
                cwd=PROJECT,
                env=self._system.environment(by_spark=self.exits.total() % 2 == 1),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code = self.process.wait()
            output.seek(begin)
            written = output.read().decode(errors="replace")[-OUTPUT_CHARS:]
        self.exits[code] += 1
        self.last_output[code] = f"{' '.join(command)}\n{written}"
        return code


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The parts of a system."""

    home: Path
    """Its folder; emptied first."""
    with_airflow: bool
    """Whether Airflow runs the minute DAG, beside the command line."""
    with_spark: bool = True
    """Whether commands count with Spark; otherwise they are :mod:`tests.chaos.sparkless`."""
    keeps_spark: bool = False
    """Whether everything counts on the Spark server that the local stack keeps."""
    on_cluster: bool = False
    """Whether that server counts on a Spark cluster of two workers."""
    delivery: str = "batch"
    """How the pipeline commits."""

    @property
    def has_connect(self) -> bool:
        """Whether commands count on a Spark Connect server that nobody keeps."""
        return self.with_spark and not self.keeps_spark


class System:
    """All of it."""

    def __init__(self, setup: Setup, announce: Callable[[str], None]) -> None:
        self.setup = setup
        Stack(project=PROJECT, home=setup.home).down()
        shutil.rmtree(setup.home, ignore_errors=True)
        self.stack = Stack(project=PROJECT, home=setup.home, announce=announce)
        self._servers = [Part.KAFKA, Part.MYSQL]
        self._servers += [Part.CLUSTER] if setup.on_cluster else []
        self._servers += [Part.SPARK] if setup.keeps_spark else []
        self.parts = [*self._servers, *([Part.AIRFLOW] if setup.with_airflow else [])]
        self.program = [str(TALLY)] if setup.with_spark else [sys.executable, "-m", SPARKLESS]
        self.config = setup.home / "tally.toml"
        self.partitions = FIRST_PARTITIONS
        self._growing = threading.Lock()
        self.connect: ConnectServer | None = None
        self._connects = ExitStack()
        self.lanes: dict[str, Lane] = {}

    @cached_property
    def settings(self) -> Settings:
        """The configuration that leads to its servers."""
        with patch.dict(os.environ, self._configured()):
            return load_settings(self.config)

    def start(self) -> None:
        """Start the servers; return when all are ready, with a topic and a ledger."""
        self.setup.home.mkdir(mode=0o700, parents=True)
        text = CONFIGURATION.format(delivery=self.setup.delivery)
        if self.setup.delivery == "files":
            text += f'files_url = "{self.setup.home / "kept"}"\n'
        self.config.write_text(text, encoding="utf-8")
        self.stack.up(self._servers)
        migrate(Database(settings=self.settings.mysql), self.settings)
        Kafka(self.settings.kafka).create_topic(TOPIC, FIRST_PARTITIONS)
        if self.setup.has_connect:
            self.start_connect()
        if self.setup.with_airflow:
            # Airflow hands its environment on to the DAGs, and to the job.
            with patch.dict(os.environ, self._configured()):
                self.stack.up([Part.AIRFLOW])
            self.airflow().unpause(PIPELINE)
            self.airflow().unpause(f"{PIPELINE}{REPLAY_SUFFIX}")

    def airflow(self) -> AirflowApi:
        """Airflow's API."""
        return AirflowApi.of(self.stack)

    def environment(self, *, by_spark: bool = False) -> dict[str, str]:
        """Of the commands.

        Args:
            by_spark: Whether Spark reads small ranges, too, as it does with an option for it.
        """
        found = {**os.environ, **self._configured()}
        if by_spark:
            found["TALLY_PIPELINES__ERROR_LOG__READER"] = '{"kafka.max.poll.records": "1000"}'
        if self.connect is not None:
            spark = self.connect.settings
            found["TALLY_SPARK__MASTER"] = spark.master
            found["TALLY_SPARK__CONNECT_TOKEN"] = spark.connect_token.get_secret_value()
        return found

    def start_connect(self) -> None:
        """Start the Spark Connect server of the commands, in place of one that is gone."""
        self._connects.close()
        folder = Path(tempfile.mkdtemp(prefix="connect-", dir=self.setup.home))
        server = connect_server(folder, self.stack.jars_dir, record_events=False)
        self.connect = self._connects.enter_context(server)

    def add_lane(self, name: str, command: Callable[[], Sequence[str] | None]) -> None:
        """Keep a command running."""
        self.lanes[name] = Lane(self, name, command)
        self.lanes[name].start()

    def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run one command of Tally's to its end; one that hangs is killed, and ends with -9."""
        words = [*self.program, *arguments]
        how: dict[str, Any] = {"cwd": PROJECT, "env": self.environment(), "timeout": COMMAND_S}
        try:
            return subprocess.run(words, capture_output=True, text=True, check=False, **how)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, -9, stdout="", stderr="it hangs")

    def add_partition(self) -> int:
        """Let the topic grow by one; returns the new partition's number."""
        servers = self.settings.kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers}, logger=logging.getLogger(__name__))
        with self._growing:
            # Asked again after an answer that was lost, it grows no further.
            if _partitions(admin) == self.partitions:
                wanted = NewPartitions(TOPIC, self.partitions + 1)
                admin.create_partitions([wanted])[TOPIC].result(30)
            self.partitions += 1
            # Who asks earlier may be told the old number, and believe it for minutes.
            while _partitions(admin) < self.partitions:
                time.sleep(0.1)
            return self.partitions - 1

    def repair(self) -> None:
        """Start again whatever is down."""
        self.stack.up(self._servers)
        if self.setup.has_connect and not any(map(is_alive, self.spark_servers())):
            self.start_connect()

    def spark_servers(self) -> list[psutil.Process]:
        """The JVM of the Spark Connect server; none while it is down."""
        if self.setup.keeps_spark:
            return [p for p in self.stack.processes.members(Part.SPARK) if p.name() == "java"]
        return [] if self.connect is None else [self.connect.process]

    def close(self) -> None:
        """End everything that was started."""
        for lane in self.lanes.values():
            lane.stop(0)
            if lane.process is not None and lane.process.poll() is None:
                lane.process.kill()
        self._connects.close()
        self.stack.down()

    # --- MySQL, read only

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a query on a fresh connection of root's."""
        with (
            contextlib.closing(self.connect_as_root()) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def result(self, *, more_than: int = 0) -> dict[datetime, int]:
        """The result table: minutes that count more lines than so many."""
        rows = self.rows(
            f"select log_time, log_count from `{PIPELINE}` where log_count > %s", (more_than,)
        )
        return {row["log_time"]: row["log_count"] for row in rows}

    def dead_letters(self) -> list[bytes]:
        """The bytes of each dead letter."""
        return [row["value"] for row in self.rows("select value from dead_letter")]

    def sums(self) -> tuple[int, int]:
        """Lines counted, and dead letters kept."""
        (row,) = self.rows(
            f"select (select coalesce(sum(log_count), 0) from `{PIPELINE}`) as counted,"
            " (select count(*) from dead_letter) as letters"
        )
        return int(row["counted"]), row["letters"]

    def minutes(self) -> list[dict[str, Any]]:
        """The minutes of the result that several lines may share and that are not open."""
        return self.rows(
            f"select log_time, log_count, amended_at from `{PIPELINE}_minutes`"
            " where state <> 'open' and log_time >= %s",
            (datetime(SHARED_YEAR, 1, 1),),  # noqa: DTZ001 - a line's time has no zone
        )

    def silently_changed(self) -> list[datetime]:
        """The minutes of one line that was counted after they were complete, and not amended."""
        rows = self.rows(
            "select c.log_time from segment_count c join segment s using (segment_id)"
            " join batch b using (batch_id) left join amendment a using (pipeline, log_time)"
            " where c.log_time < %s and a.log_time is null group by c.log_time"
            " having min(b.committed_at) > (select min(completed_at) from completion)",
            (datetime(SHARED_YEAR, 1, 1),),  # noqa: DTZ001 - a line's time has no zone
        )
        return [row["log_time"] for row in rows]

    def hours(self) -> tuple[dict[datetime, int], dict[datetime, datetime]]:
        """The lines of each hour of the result, and when the complete ones were last amended."""
        hour = "timestamp(date(log_time), maketime(hour(log_time), 0, 0)) as at"
        lines = self.rows(f"select {hour}, sum(log_count) as n from `{PIPELINE}` group by at")
        amended = self.rows(f"select {hour}, max(amended_at) as last from amendment group by at")
        return {r["at"]: int(r["n"]) for r in lines}, {r["at"]: r["last"] for r in amended}

    def announced(self) -> list[dict[str, Any]]:
        """Airflow's events of the hours."""
        found: list[dict[str, Any]] = []
        path = f"/api/v2/assets/events?name_pattern=tally_{PIPELINE}_hours&limit=100"
        while some := self.airflow().ask("GET", f"{path}&offset={len(found)}")["asset_events"]:
            found += some
        return found

    def offsets(self) -> int:
        """How far counting has come, in all partitions together."""
        (row,) = self.rows("select coalesce(sum(next_offset), 0) as n from partition_offset")
        return int(row["n"])

    def kept_lines(self, *, more_than: int = 0) -> dict[datetime, int] | None:
        """The lines that readers see by minute, more than so many; None when none are kept."""
        if self.setup.delivery in {"batch", "partition"}:
            return None
        if self.setup.delivery == "files":
            return {at: n for at, n in self._lines_in_files().items() if n > more_than}
        rows = self.rows(
            f"select log_time, count(*) as n from `{PIPELINE}_rows`"
            " group by log_time having n > %s",
            (more_than,),
        )
        return {row["log_time"]: row["n"] for row in rows}

    def _lines_in_files(self) -> Counter[datetime]:
        """The lines in the files that the view names, by minute."""
        files = [row["file"] for row in self.rows(f"select file from `{PIPELINE}_files`")]
        found: Counter[datetime] = Counter()
        for file in files:
            found.update(pq.read_table(file.removeprefix("file://"))["log_time"].to_pylist())
        return found

    def connect_as_root(self) -> "pymysql.Connection[Any]":
        """A connection as root, with short timeouts."""
        mysql = self.settings.mysql
        return pymysql.connect(
            host=mysql.host,
            port=mysql.port,
            user="root",
            password=self.stack.credentials().mysql_root,
            database=mysql.database,
            cursorclass=pymysql.cursors.DictCursor,
            connect_timeout=2,
            read_timeout=10,
            autocommit=True,
        )

    # --- processes

    def processes(self) -> list[psutil.Process]:
        """All processes with its configuration or in its home, whatever their parents are."""
        return [p for p in psutil.process_iter() if p.pid != os.getpid() and self._is_ours(p)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            configuration = process.environ().get("TALLY_CONFIG")
            line = " ".join(process.cmdline())
            return configuration == str(self.config) or str(self.setup.home) in line
        except psutil.Error:
            return False

    def _configured(self) -> dict[str, str]:
        return {
            "TALLY_CONFIG": str(self.config),
            "TALLY_SECRETS_FILE": str(self.stack.layout.overlay),
        }


def is_alive(process: psutil.Process) -> bool:
    """Whether it can still do something; one that is stopped can, later."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _partitions(admin: AdminClient) -> int:
    return len(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions)
