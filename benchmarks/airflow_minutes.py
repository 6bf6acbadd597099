"""From the minute's boundary to the commit, under Airflow, and the CPU time of all processes.

Usage: ``.tally/venv/bin/python -m benchmarks.airflow_minutes [--minutes 10]``

Starts Kafka, MySQL, Airflow and a warm Spark server, and lets Airflow's schedule run in each of
these ways, one after the other; for so many minutes in the last two, half as many in the others:

- a DAG of two empty tasks: what Airflow itself takes,
- the minute DAG while nothing is written,
- the minute DAG on the warm server, with 10,000 lines a minute,
- the same by spark-submit, without the server.

Prints the median and the longest time from the boundary of a minute to the commit, the share
of each step, and the CPU seconds of a minute: Airflow's own, those of its tasks with their drivers,
those of Spark's server, Kafka and MySQL. Every line must be counted, or it ends with an error.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from unittest.mock import patch

import psutil
from tests.first_use.pages import checkout

from benchmarks.page import Table, command, say
from benchmarks.servers import PARTITIONS
from tally.audit.audit import audit
from tally.config.loading import load_settings
from tally.context import open_context
from tally.counting.plan import plan
from tally.counting.run import run_batches
from tally.kafka.client import Kafka
from tally.ledger.records import BatchRecord, list_batches
from tally.mysql.transactions import Database
from tally.set_up.migrate import migrate
from tally_local.demo.airflow_api import AirflowApi
from tally_local.demo.traffic import Traffic
from tally_local.demo.writer import LineWriter
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack

T = TypeVar("T")

PIPELINE = "error_log"
EMPTY = "two_empty_tasks"
TOPIC = "minutes"
LINES_PER_MINUTE = 10_000
STEPS = ("planned", "claimed", "read", "committed")
DAG = f'''
from datetime import datetime
from airflow.sdk import DAG, task

with DAG("{EMPTY}", schedule="* * * * *", start_date=datetime(2026, 1, 1), catchup=False,
         max_active_runs=1):
    @task
    def first():
        return None

    @task
    def second():
        return None

    first() >> second()
'''


@dataclass(kw_only=True, slots=True)
class Phase:
    """What one of the ways took."""

    title: str
    minutes: float = 0
    seconds: list[float] = field(default_factory=list)
    """From the boundary of a minute to the commit, or to the end of the run."""
    steps: list[Mapping[str, float]] = field(default_factory=list)
    """The seconds of each step, for each batch."""
    cpu: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds by whose they were."""


def measure(minutes: int = 10) -> Iterator[Table]:
    """Run all ways.

    Raises:
        RuntimeError: A run of Airflow has failed, or a line was not counted.
    """
    with TemporaryDirectory(prefix="tally-minutes-") as folder, patch.dict(os.environ):
        project = checkout(Path(folder).resolve() / "checkout")
        (project / "dags" / f"{EMPTY}.py").write_text(DAG, encoding="utf-8")
        (project / "tally.toml").write_text(f'[pipelines.{PIPELINE}]\ntopics = ["{TOPIC}"]\n')
        system = System(project)
        with system.stack.foreground([Part.KAFKA, Part.MYSQL, Part.SPARK]):
            system.prepare()
            with system.stack.foreground([Part.AIRFLOW]):
                phases = list(_phases(system, minutes))
    base = statistics.median(phases[0].seconds)
    yield Table(
        name="minutes",
        headers=[
            "Airflow's schedule runs",
            "median, s",
            "of two empty tasks'",
            "longest, s",
            *(f"until {step}, s" for step in STEPS),
            "CPU s a minute: Airflow",
            "its tasks",
            "Spark's server",
            "Kafka and MySQL",
        ],
        rows=[_row(phase, base) for phase in phases],
    )


def _phases(system: "System", minutes: int) -> Iterator[Phase]:
    base_minutes = max(1, minutes // 2)
    yield system.run(Phase(title="two empty tasks"), EMPTY, base_minutes)
    yield system.run(Phase(title="Tally, nothing new"), PIPELINE, base_minutes)
    yield system.run(Phase(title="**Tally**, a warm server"), PIPELINE, minutes, lines=True)
    system.stack.down([Part.SPARK])
    yield system.run(Phase(title="Tally by spark-submit"), PIPELINE, minutes, lines=True)
    system.check()


def _row(phase: Phase, base: float) -> list[str]:
    median = statistics.median(phase.seconds)
    known = [[steps[step] for steps in phase.steps if step in steps] for step in STEPS]
    return [
        phase.title,
        f"{median:.2f}",
        f"{median / base:.2f}",
        f"{max(phase.seconds):.2f}",
        *(f"{statistics.median(values):.2f}" if values else "" for values in known),
        *(f"{seconds / phase.minutes:.1f}" for seconds in phase.cpu.values()),
    ]


class System:
    """Servers with Airflow, whose DAG folder has the DAG of two empty tasks as well."""

    def __init__(self, project: Path) -> None:
        self.stack = Stack(project=project, announce=say)
        self.config = project / "tally.toml"
        self._sent = 0

    def prepare(self) -> None:
        """Create the ledger and the topic."""
        os.environ |= {
            "TALLY_CONFIG": str(self.config),
            "TALLY_SECRETS_FILE": str(self.stack.layout.overlay),
        }
        self.settings = load_settings(self.config)
        migrate(Database(settings=self.settings.mysql), self.settings)
        Kafka(self.settings.kafka).create_topic(TOPIC, PARTITIONS)

    def run(self, phase: Phase, dag_id: str, minutes: int, *, lines: bool = False) -> Phase:
        """Let a DAG run for so many minutes, and one before, which warms it."""
        airflow = AirflowApi.of(self.stack)
        airflow.unpause(dag_id)
        with ExitStack() as writing:
            traffic = writing.enter_context(self._traffic()) if lines else None
            time.sleep((45 - time.time()) % 60)  # between two runs
            time.sleep(60)  # the first run is over
            began, cpu = time.time(), self._cpu()
            time.sleep(60 * minutes)
            phase.minutes = (time.time() - began) / 60
            phase.cpu = {who: now - cpu[who] for who, now in self._cpu().items()}
        airflow.pause(dag_id)
        answer = airflow.ask("GET", f"/api/v2/dags/{dag_id}/dagRuns?limit=100&order_by=-run_after")
        runs = answer["dag_runs"]
        if any(run["state"] == "failed" for run in runs):
            raise RuntimeError(f"{dag_id}: a run has failed")
        if traffic is not None:
            self._sent += traffic.sent
            phase.steps = [batch.steps for batch in self._batches(began)]
            phase.seconds = [sum(steps.values()) for steps in phase.steps]
        else:
            phase.seconds = [
                _moment(run["end_date"]) - _moment(run["run_after"])
                for run in runs
                if run["state"] == "success" and _moment(run["run_after"]) >= began
            ]
        if not phase.seconds:
            raise RuntimeError(f"{phase.title}: nothing has run")
        return phase

    def check(self) -> None:
        """Count what is left; raise unless every line was counted."""
        ctx = open_context(load_settings(self.config))  # by now without the server
        while batch_ids := plan(ctx, PIPELINE).batch_ids:
            list(run_batches(ctx, batch_ids))
        counted = audit(ctx, PIPELINE)
        if not counted.holds or counted.records != self._sent:
            raise RuntimeError(f"counted {counted.records} lines of {self._sent}: {counted}")

    def _traffic(self) -> Traffic:
        return Traffic(
            LineWriter(self.settings.kafka),
            TOPIC,
            partitions=PARTITIONS,
            levels=self.settings.pipeline(PIPELINE).levels,
            rate=LINES_PER_MINUTE // 60,
            seed=1,
        )

    def _batches(self, began: float) -> list[BatchRecord]:
        """The batches that were scheduled since, and are committed."""
        with Database(settings=self.settings.mysql).transaction(read_only=True) as tx:
            found = list_batches(tx, PIPELINE, limit=1_000)
        return [
            batch
            for batch in found
            if batch.committed_at is not None
            and batch.scheduled_at is not None
            and batch.scheduled_at.timestamp() >= began
        ]

    def _cpu(self) -> dict[str, float]:
        """CPU seconds so far, by whose they are: a task is all that Airflow's workers start."""
        airflow = self.stack.processes.members(Part.AIRFLOW)
        workers = [
            p for p in airflow if " ".join(_unless_gone(p.cmdline)).startswith("airflow worker")
        ]
        below = [_unless_gone(partial(worker.children, recursive=True)) for worker in workers]
        tasks = set(chain.from_iterable(below))
        rest = [p for p in airflow if p not in tasks and p not in workers]
        of_workers = [_cpu_of(p) for p in workers]
        return {
            "Airflow": _total(rest) + sum(own for own, _ in of_workers),
            "its tasks": _total(tasks) + sum(ended for _, ended in of_workers),
            "Spark's server": _total(self.stack.processes.members(Part.SPARK)),
            "Kafka and MySQL": _total(
                [
                    *self.stack.processes.members(Part.KAFKA),
                    *self.stack.processes.members(Part.MYSQL),
                ]
            ),
        }


def _total(processes: Iterable[psutil.Process]) -> float:
    return sum(map(sum, map(_cpu_of, processes)))


def _cpu_of(process: psutil.Process) -> tuple[float, float]:
    """CPU seconds of a process, and of its children that have ended."""
    user, system, of_children, of_children_system, *_ = _unless_gone(process.cpu_times) or [0.0] * 4
    return user + system, of_children + of_children_system


def _unless_gone(question: Callable[[], Sequence[T]]) -> Sequence[T]:
    """What a process answers; nothing when it has ended."""
    try:
        return question()
    except psutil.Error:
        return ()


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    sys.exit(command(measure))
