"""A whole Tally, started as the README says: Kafka, MySQL, Spark and Airflow with known lines."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tally_local.demo.airflow_api import AirflowApi, RefusedError
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.console.collector import Collector, collecting
from tests.first_use.pages import blocks, checkout, commands, execute
from tests.servers import PROJECT
from tests.waiting import wait_until

PIPELINE: Final = "error_log"
TOPIC: Final = "alog"
VIEWER: Final = "vera"
OPERATOR: Final = "olga"

START: Final = "tally up"
END: Final = "tally down"

HOSTILE: Final = (
    "<script>document.title = 'owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
)
"""Records whose writers hope for a page that takes them for markup."""


@dataclass(frozen=True, kw_only=True)
class RunningStack:
    """The servers, and what a test does to them from outside."""

    folder: Path
    stack: Stack
    airflow: AirflowApi
    kafka: str
    """Its address."""
    first: datetime
    """The first minute of which there are lines; UTC, as the lines have it."""
    said: str
    """What the README's commands have said."""
    collector: Collector
    """What receives Airflow's metrics."""

    def produce(self, lines: Sequence[str], partition: int, topic: str = TOPIC) -> None:
        """Write lines to a partition."""
        producer = Producer({"bootstrap.servers": self.kafka})
        for line in lines:
            producer.produce(topic, line.encode(), partition=partition)
        assert producer.flush(60) == 0

    def run(self, dag_id: str, **conf: Any) -> str:
        """Run a DAG to its end; returns the state of the run."""
        path = f"/api/v2/dags/{dag_id}/dagRuns"
        run_id = f"test__{uuid4().hex}"

        def started() -> bool:
            try:
                self.airflow.ask("POST", path, dag_run_id=run_id, logical_date=None, conf=conf)
            except RefusedError as error:
                # Who failed may have made the run, and SQLite has one writer at a time.
                if error.status == HTTPStatus.CONFLICT:
                    return True
                if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                return False
            return True

        def ended() -> str | None:
            state = str(self.airflow.ask("GET", f"{path}/{run_id}")["state"])
            return state if state in {"success", "failed"} else None

        assert wait_until(started, 60, pause_s=1)
        return str(wait_until(ended, 600, pause_s=1))

    def lose(self, partition: int, lines: int) -> None:
        """Have Kafka delete lines that nobody has counted, and the next plan notice it."""
        self.produce([line_of(self.first, "ERROR", n) for n in range(lines)], partition)
        admin = AdminClient({"bootstrap.servers": self.kafka})
        # -1: up to the end of what is written.
        deleted = admin.delete_records([TopicPartition(TOPIC, partition, -1)])
        for future in deleted.values():
            future.result(60)
        assert self.run(PIPELINE) == "failed"

    def add_pipelines(self, keys: Mapping[str, str]) -> None:
        """Configure more pipelines, by name, each with the keys of its table, and their topics."""
        with (self.folder / "tally.toml").open("a", encoding="utf-8") as config:
            for name, text in keys.items():
                config.write(f'\n[pipelines.{name}]\nschedule = "0 0 1 1 *"\n{text}\n')
        admin = AdminClient({"bootstrap.servers": self.kafka})
        topics = set(re.findall(r'topics = \["(\w+)"\]', "".join(keys.values())))
        made = admin.create_topics([NewTopic(topic, num_partitions=1) for topic in topics])
        for future in made.values():
            future.result(60)
        (self.folder / "dags" / "tally_pipelines.py").touch()  # Airflow parses it without delay
        self.tally("migrate")

    def tally(self, *commands: str) -> None:
        """Run commands of Tally's."""
        execute([f".tally/venv/bin/tally {one}" for one in commands], self.folder, {})

    def password(self, user: str) -> str:
        """Of a user of Airflow."""
        passwords = self.stack.layout.airflow / "passwords.json"
        return str(json.loads(passwords.read_text(encoding="utf-8"))[user])


def line_of(minute: datetime, level: str, number: int) -> str:
    """A line in the pipeline's format."""
    return f"{minute:%Y-%m-%d %H:%M}:{number % 60:02d} {level} request {number} failed"


def readme() -> list[str]:
    """The commands of the README's start, in their order."""
    return [
        line
        for language, text in blocks(PROJECT / "README.md", "## Start")
        if language == "console"
        for line in commands(text)
    ]


@contextmanager
def running_stack(folder: Path) -> Iterator[RunningStack]:
    """The servers of a new checkout, with an hour of lines that are counted and audited.

    Airflow is started first, because the tests need options of it. The README's commands, from
    ``tally up`` on, start the other servers and count a first line.
    """
    with (checkout(folder) / "tally.toml").open("a", encoding="utf-8") as config:
        # It counts only when a test asks for it, so that a page holds still.
        config.write('schedule = "0 0 1 1 *"\n')
    lines = readme()
    path, *rest = lines[lines.index(START) - 1 : lines.index(END)]
    with collecting() as collector:
        options: dict[str, dict[str, object]] = {
            "core": {
                "parallelism": 3,  # as many processes are started, and each imports Airflow
                "simple_auth_manager_users": f"admin:admin,{OPERATOR}:op,{VIEWER}:viewer",
            },
            "metrics": {
                "otel_on": True,
                "otel_host": "127.0.0.1",
                "otel_port": collector.port,
                "otel_interval_milliseconds": 1_000,
            },
            "traces": {"otel_on": True},
        }
        stack = Stack(project=folder, announce=print, airflow_options=options)
        try:
            with pytest.MonkeyPatch.context() as environment:
                endpoint = f"http://127.0.0.1:{collector.port}/v1/traces"
                environment.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint)
                environment.setenv("OTEL_TRACES_EXPORTER", "otlp_proto_http")
                stack.up([Part.AIRFLOW])
            # The second call says the same again.
            said = execute([path, START, *rest], folder, {})
            minute = datetime.now(UTC).replace(second=0, microsecond=0, tzinfo=None)
            running = RunningStack(
                folder=folder,
                stack=stack,
                airflow=AirflowApi.of(stack, timeout_s=180),
                kafka=next(str(s.address) for s in stack.status() if s.part is Part.KAFKA),
                first=minute - timedelta(hours=1),
                said=said,
                collector=collector,
            )
            _count_an_hour(running)
            yield running
        finally:
            stack.down()


def _count_an_hour(running: RunningStack) -> None:
    """Two batches of half an hour each, on four partitions, with lines nobody understands."""
    for part in range(2):
        for partition in range(4):
            minutes = [running.first + timedelta(minutes=part * 30 + n) for n in range(30)]
            running.produce(
                [
                    line_of(minute, "ERROR" if number % 3 == 0 else "INFO", number)
                    for at, minute in enumerate(minutes)
                    for number in range(20 + (at * 7 + partition * 5) % 23)
                ],
                partition,
            )
        if part == 0:
            running.produce([*HOSTILE, "no line at all", '{"level": "ERROR"}'], 2)
        assert running.run(PIPELINE) == "success"
    assert running.run(f"{PIPELINE}_audit") == "success"
