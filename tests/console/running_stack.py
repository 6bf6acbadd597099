"""A whole Tally that a browser can new_window: Kafka, MySQL, Spark and Airflow with known lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from tally.config.loading import load_settings
from tally.config.settings import Settings
from tally.config.variables import SECRETS_VARIABLE
from tally_local.demo.airflow_api import AirflowApi
from tally_local.first_use import prepare
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.waiting import wait_until

PIPELINE: Final = "error_log"
TOPIC: Final = "alog"
VIEWER: Final = "vera"
OPERATOR: Final = "olga"

# Counts only when a test asks for it, so that a page holds still.
CONFIG: Final = f"""
[pipelines.{PIPELINE}]
topics = ["{TOPIC}"]
line_format = "fixed"
levels = ["ERROR"]
max_malformed_ratio = 0.5
schedule = "0 0 1 1 *"
"""

HOSTILE: Final = (
    "<script>document.title = 'owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
)
"""Records whose writers hope for a page that takes them for markup."""

RUN_S: Final = 600
ANSWER_S: Final = 180


@dataclass(frozen=True, kw_only=True)
class RunningStack:
    """The servers, and what a test does to them from outside."""

    folder: Path
    stack: Stack
    settings: Settings
    airflow: AirflowApi
    address: str
    """Of Airflow's pages."""
    first: datetime
    """The first minute of which there are lines; UTC, as the lines have it."""

    def produce(self, lines: Sequence[str], partition: int) -> None:
        """Write lines to a partition."""
        producer = Producer({"bootstrap.servers": self.settings.kafka.bootstrap_servers})
        for line in lines:
            producer.produce(TOPIC, line.encode(), partition=partition)
        assert producer.flush(60) == 0

    def run(self, dag_id: str, **conf: Any) -> str:
        """Run a DAG to its end; returns the state of the run."""
        path = f"/api/v2/dags/{dag_id}/dagRuns"
        made = self.airflow.ask("POST", path, logical_date=None, conf=conf)
        found: dict[str, Any] = {}

        def has_ended() -> bool:
            found.update(self.airflow.ask("GET", f"{path}/{made['dag_run_id']}"))
            return found["state"] in {"success", "failed"}

        wait_until(has_ended, RUN_S, pause_s=1)
        return str(found["state"])

    def lose(self, partition: int, lines: int) -> None:
        """Have Kafka delete lines that nobody has counted, and the next plan notice it."""
        self.produce([line_of(self.first, "ERROR", n) for n in range(lines)], partition)
        admin = AdminClient({"bootstrap.servers": self.settings.kafka.bootstrap_servers})
        # -1: up to the end of what is written.
        deleted = admin.delete_records([KafkaTopicPartition(TOPIC, partition, -1)])
        for future in deleted.values():
            future.result(60)
        assert self.run(PIPELINE) == "failed"

    def password(self, user: str) -> str:
        """Of a user of Airflow."""
        passwords = self.stack.layout.airflow / "passwords.json"
        return str(json.loads(passwords.read_text(encoding="utf-8"))[user])


def line_of(minute: datetime, level: str, number: int) -> str:
    """A line in the pipeline's format."""
    return f"{minute:%Y-%m-%d %H:%M}:{number % 60:02d} {level} request {number} failed"


@contextmanager
def running_stack(
    folder: Path, further: Mapping[str, Mapping[str, object]]
) -> Iterator[RunningStack]:
    """The servers of a checkout, with an hour of lines that are counted and audited.

    Args:
        folder: The checkout.
        further: Options of Airflow, by section.
    """
    (folder / "tally.toml").write_text(CONFIG, encoding="utf-8")
    users = f"admin:admin,{OPERATOR}:op,{VIEWER}:viewer"
    options = {"core": {"simple_auth_manager_users": users}, **further}
    stack = Stack(project=folder, announce=print, airflow_options=options)
    try:
        parts = stack.up()
        with pytest.MonkeyPatch.context() as patched:  # other tests of this process have theirs
            patched.setenv(SECRETS_VARIABLE, str(stack.overlay))
            settings = load_settings(folder / "tally.toml")
        prepare(settings, parts)
        airflow = AirflowApi.of(stack, timeout_s=ANSWER_S)
        first = datetime.now(UTC).replace(second=0, microsecond=0, tzinfo=None) - timedelta(hours=1)
        running = RunningStack(
            folder=folder,
            stack=stack,
            settings=settings,
            airflow=airflow,
            address=next(str(s.address) for s in parts if s.part is Part.AIRFLOW),
            first=first,
        )
        for dag_id in (PIPELINE, f"{PIPELINE}_audit"):
            airflow.unpause(dag_id)
        _count_an_hour(running)
        yield running
    finally:
        stack.down()


def _count_an_hour(running: RunningStack) -> None:
    """Three batches of twenty minutes each, on four partitions, with lines nobody understands."""
    for part in range(3):
        for partition in range(4):
            minutes = [running.first + timedelta(minutes=part * 20 + n) for n in range(20)]
            running.produce(
                [
                    line_of(minute, "ERROR" if number % 3 == 0 else "INFO", number)
                    for at, minute in enumerate(minutes)
                    for number in range(20 + (at * 7 + partition * 5) % 23)
                ],
                partition,
            )
        if part == 1:
            running.produce([*HOSTILE, "no line at all", '{"level": "ERROR"}'], 2)
        assert running.run(PIPELINE) == "success"
    assert running.run(f"{PIPELINE}_audit") == "success"
