"""Faults, each of which strikes once, at a point that the methods have in common.

A method says at which point its code is, in the driver or in a Spark task. Whichever process is
there is killed by SIGKILL, once in a run; a file tells all processes that it was. Spark runs a task
again whose Python worker is gone, and the supervisor starts a driver again.
"""

import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import Final

FAULT: Final = "LAB_FAULT"
"""The environment variable with the fault of a run."""
FOLDER: Final = "LAB_FOLDER"
"""The one with the folder of the run, where Spark's Python workers find it, too."""
STRIKES_AT_BATCH: Final = 2


class Fault(StrEnum):
    """What happens, once, while the second batch is processed or one that is later."""

    NONE = "no fault"
    TASK_READ = "a task is killed after its read"
    BEFORE_WRITE = "killed after the offsets, before the write"
    BEFORE_OFFSETS = "killed after the write, before the offsets"
    TASK_WROTE = "a task is killed after its commit"
    BETWEEN_TASKS = "the driver is killed after a task's commit"
    STATE_LOST = "killed, and the checkpoint is lost"


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
    try:
        (folder() / "struck").touch(exist_ok=False)
    except FileExistsError:
        return
    driver = int((folder() / "driver").read_text(encoding="ascii"))
    os.kill(driver if fault is Fault.BETWEEN_TASKS else os.getpid(), signal.SIGKILL)
