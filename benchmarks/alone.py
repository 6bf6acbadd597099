"""A program of its own that counts, for its time and its memory.

It counts with pipelines one after the other, in one session, and prints what the last one took and
the largest memory that all have taken.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.page import say
from benchmarks.servers import Bench, count
from tally.config.loading import load_settings
from tally.context import open_context
from tally.spark.session import spark_session


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """How a program of its own has counted."""

    seconds: float
    """The last pipeline, from plan to commit."""
    jvm_mib: float
    """The largest resident memory of the driver's JVM."""
    python_mib: float
    """The same of its Python."""


def count_alone(
    servers: Bench, pipelines: Sequence[str], lines: int, *, master: str | None = None
) -> Alone:
    """Count in a program of its own.

    Args:
        servers: Whose environment it has.
        pipelines: Counted one after the other, in one session.
        lines: That each of them has to count.
        master: Spark's; that of the settings when None.

    Raises:
        subprocess.CalledProcessError: The program has failed, or not counted every line.
    """
    environment = servers.environment() | (
        {} if master is None else {"TALLY_SPARK__MASTER": master}
    )
    argv = [sys.executable, "-m", "benchmarks.alone", str(lines), *pipelines]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    found = Alone(**json.loads(done.stdout.splitlines()[-1]))
    say(f"  {pipelines[-1]}: {found}")
    return found


def _count(lines: int, pipelines: Sequence[str]) -> Alone:
    settings = load_settings()
    conf = {**settings.spark.conf, "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    with spark_session(settings.spark.model_copy(update={"conf": conf}), pipelines[0]) as session:
        ctx = open_context(settings, open_session=lambda: nullcontext(session))
        for pipeline in pipelines:
            began = time.perf_counter()
            count(ctx, pipeline, lines)
            seconds = time.perf_counter() - began
        (jvm,) = [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]
        python = psutil.Process()
        return Alone(seconds=seconds, jvm_mib=_peak(jvm.pid), python_mib=_peak(python.pid))


def _peak(pid: int) -> float:
    """The largest resident memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    if match is None:
        raise RuntimeError(f"/proc/{pid}/status has no VmHWM")
    return int(match[1]) / 1024


if __name__ == "__main__":
    say(json.dumps(asdict(_count(int(sys.argv[1]), sys.argv[2:]))))
