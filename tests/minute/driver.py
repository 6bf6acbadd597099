"""A Spark driver in a process of its own, whose tasks a test may end.

Spark copies a task only to another host than that of its first attempt, and all executors of a
local cluster have one host. So a second executor is started here, by the command line of the first.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import psutil
from pyspark.sql import DataFrame

from tally.config.loading import load_settings
from tally.config.servers import SparkSettings
from tally.context import open_context
from tally.model import OffsetRange
from tally.spark import counting
from tally.spark.java import QUICK_START
from tally.spark.reading import collect
from tally.spark.session import spark_session
from tally_local.stack.stack import Stack
from tests.servers import PROJECT
from tests.waiting import wait_until
from tests.world import run_batch

EAGER = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.speculation": "true",
    "spark.speculation.interval": "10ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "0.001",
    "spark.speculation.minTaskRuntime": "0ms",
    "spark.speculation.efficiency.enabled": "false",
    # Otherwise Spark joins the parts of few minutes into one.
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
"""Copies every task for which there is room."""


class Task(NamedTuple):
    """What Spark says of an attempt at a task."""

    number: int
    status: str
    is_speculative: bool
    error: str
    stage_attempt: int


class Driver:
    """Lives in the driver's process; a test calls it from several threads."""

    def __init__(self) -> None:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        jars = Stack(project=PROJECT).jars_dir
        conf = {**EAGER, "spark.executor.extraClassPath": f"{jars}/*"}
        settings = SparkSettings(master="local-cluster[1,1,512]", jars_dir=jars, conf=conf)
        self._scope = ExitStack()
        self._session = self._scope.enter_context(spark_session(settings, "a test's driver"))
        self._context: Any = self._session.sparkContext._jsc.sc()
        self._before = -1  # the last stage of the run before the latest
        self._second: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """Stop Spark and its executors."""
        if self._second is not None:
            self._second.kill()
            self._second.wait()
        self._scope.close()

    def run(self, config: Path, batch_id: int, *, loses_files: bool = False) -> bool:
        """Count and commit a batch; it may lose the results of tasks when some were fetched."""
        self._before = max((stage.stageId() for stage in self._stages()), default=-1)
        settings = load_settings(config)
        fetch = self._fetch_and_lose if loses_files else collect
        reader = counting.SparkReader(session=self._session, kafka=settings.kafka, fetch=fetch)
        ctx = replace(open_context(settings), open_reader=lambda: nullcontext(reader))
        groups = 1_000 if loses_files else counting._GROUPS_PER_TASK  # more come in parts
        with patch.object(counting, "_GROUPS_PER_TASK", groups):
            return run_batch(ctx, batch_id).committed

    def tasks(self) -> list[Task]:
        """The attempts of the latest run, so far."""
        return [
            Task(
                number=attempt.taskId(),
                status=str(attempt.status()),
                is_speculative=attempt.speculative(),
                error=str(attempt.errorMessage()),
                stage_attempt=stage.attemptId(),
            )
            for stage in self._stages()
            if stage.stageId() > self._before
            for attempt in _items(
                self._context.statusStore().taskList(stage.stageId(), stage.attemptId(), 1000)
            )
        ]

    def running(self) -> list[Task]:
        """The attempts that run now."""
        return [task for task in self.tasks() if task.status == "RUNNING"]

    def kill(self, task: int, reason: str) -> None:
        """Kill an attempt, as the loss of its executor would; Spark starts another."""
        self._context.killTaskAttempt(task, True, reason)

    def start_second(self) -> None:
        """Start an executor on another host."""
        wait_until(lambda: self._executors() == 1)
        first = next(_executors())
        argv = first.cmdline()
        argv[argv.index("--executor-id") + 1] = "100"
        argv[argv.index("--hostname") + 1] = "127.0.0.2"
        env = {**first.environ(), "SPARK_LOCAL_IP": "127.0.0.2"}
        self._second = subprocess.Popen(argv, cwd=first.cwd(), env=env, stderr=subprocess.DEVNULL)
        wait_until(lambda: self._executors() == 2)

    def _executors(self) -> int:
        return int(self._context.getExecutorMemoryStatus().size()) - 1  # the driver is in it

    def _fetch_and_lose(
        self, rows: DataFrame, ranges: Sequence[OffsetRange], **how: bool
    ) -> Iterator[Sequence[Any]]:
        found = collect(rows, ranges, **how)
        yield next(found)
        folders = {f for p in _executors() for f in p.environ()["SPARK_EXECUTOR_DIRS"].split(":")}
        files = [file for folder in folders for file in Path(folder).rglob("shuffle_*")]
        assert files
        for file in files:
            file.unlink()
        yield from found

    def _stages(self) -> list[Any]:
        self._context.listenerBus().waitUntilEmpty()
        store = self._context.statusStore()
        defaults = [getattr(store, f"stageList$default${n}")() for n in (2, 3, 4, 5)]
        return _items(store.stageList(None, *defaults))


def _executors() -> Iterator[psutil.Process]:
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                yield process


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(n) for n in range(sequence.size())]


class DriverProcess(BaseManager):
    """The process of a driver."""


DriverProcess.register("Driver", Driver)
