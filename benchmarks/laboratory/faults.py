"""Faults, each of which strikes once, at a point that the methods have in common.

A method says at which point its code is, in the driver or in a Spark task. Whichever process is
there is killed by SIGKILL, once in a run; a file tells all processes that it was. Spark runs a task
again whose Python worker is gone, and the supervisor starts a driver again. Where a task is copied,
nothing is killed: it waits until Spark has started a copy of it on another host.
"""

import os
import signal
import time
from enum import StrEnum
from pathlib import Path
from typing import Final

import psutil
from pyspark import TaskContext

FAULT: Final = "LAB_FAULT"
"""The environment variable with the fault of a run."""
FOLDER: Final = "LAB_FOLDER"
"""The one with the folder of the run, where Spark's Python workers find it, too."""
STRIKES_AT_BATCH: Final = 2
_COPY_S: Final = 120
"""Seconds that a task waits for its copy at most."""


class Fault(StrEnum):
    """What happens, once, while the second batch is processed or one that is later."""

    NONE = "no fault"
    TASK_READ = "a task is killed after its read"
    BEFORE_WRITE = "killed after the offsets, before the write"
    BEFORE_OFFSETS = "killed after the write, before the offsets"
    TASK_WROTE = "a task is killed after its commit"
    BETWEEN_TASKS = "the driver is killed after a task's commit"
    STATE_LOST = "killed, and the checkpoint is lost"
    CODE_CHANGED = "killed, and started again with smaller batches"
    EXECUTOR_READ = "an executor is lost after a task's read"
    EXECUTOR_WROTE = "an executor is lost after a task's commit"
    COPY_READ = "a task and its speculative copy both go on after the read"
    COPY_WROTE = "a speculative copy commits before its task"


OF_TASKS: Final = frozenset(
    {Fault.TASK_WROTE, Fault.BETWEEN_TASKS, Fault.EXECUTOR_WROTE, Fault.COPY_WROTE}
)
"""Faults that there are only where tasks commit."""
_OF_EXECUTORS: Final = frozenset({Fault.EXECUTOR_READ, Fault.EXECUTOR_WROTE})
OF_COPIES: Final = frozenset({Fault.COPY_READ, Fault.COPY_WROTE})
"""Faults for which Spark must start copies of slow tasks."""
OF_CLUSTERS: Final = _OF_EXECUTORS | OF_COPIES
"""Faults that there are only where executors are processes of their own, on two hosts."""


def folder() -> Path:
    """The folder of this run."""
    return Path(os.environ[FOLDER])


def begin_driver() -> None:
    """Say which process is the driver."""
    (folder() / "driver").write_text(str(os.getpid()), encoding="ascii")


def begin_batch() -> None:
    """Count a batch of this run, of whichever driver."""
    (folder() / "batches").write_text(str(batches_begun() + 1), encoding="ascii")


def batches_begun() -> int:
    """How many batches were begun."""
    file = folder() / "batches"
    return int(file.read_text(encoding="ascii")) if file.exists() else 0


def has_struck() -> bool:
    """Whether the fault of this run has struck."""
    return (folder() / "struck").exists()


def point(*faults: Fault) -> None:
    """Where the code is now: a fault of these strikes, if it is that of this run."""
    fault = Fault(os.environ.get(FAULT, Fault.NONE))
    if fault not in faults or batches_begun() < STRIKES_AT_BATCH:
        return
    if not _strikes_now():
        if fault is Fault.COPY_READ:
            behind(fault)
    elif fault in OF_COPIES:
        _wait_for_copy()
    elif fault in _OF_EXECUTORS:
        _executor().kill()
    else:
        driver = int((folder() / "driver").read_text(encoding="ascii"))
        os.kill(driver if fault is Fault.BETWEEN_TASKS else os.getpid(), signal.SIGKILL)


def behind(fault: Fault) -> None:
    """Where a copy of a task is past the point at which its task waits."""
    if os.environ.get(FAULT) != fault or not has_struck():
        return
    if (folder() / "struck").read_text(encoding="ascii") == _here():
        (folder() / "copied").touch()


def _strikes_now() -> bool:
    """Whether this is the first process at the point."""
    try:
        with (folder() / "struck").open("x", encoding="ascii") as file:
            file.write(_here())
    except FileExistsError:
        return False
    return True


def _here() -> str:
    """The task that this process runs, the same for all copies of it; or the driver."""
    task = TaskContext.get()
    return "driver" if task is None else f"{task.stageId()} {task.partitionId()}"


def _wait_for_copy() -> None:
    """Wait until the copy is past this point; Spark kills this process when the copy has ended."""
    deadline = time.monotonic() + _COPY_S
    while not (folder() / "copied").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def _executor() -> psutil.Process:
    """The JVM of the executor in whose Python worker this is."""
    return next(p for p in psutil.Process().parents() if p.name() == "java")
