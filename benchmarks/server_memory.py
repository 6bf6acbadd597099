"""How much memory a warm Spark Connect server needs, batch after batch.

Usage: ``.tally/venv/bin/python -m benchmarks.server_memory [--batches 2000] [--pipelines 1]
[--partitions 4] [--deliveries batch partition rows procedure files]``

Counts so many small batches on the local stack's own server, each in a session of its own as a
task of Airflow does, the pipelines in turns; each pipeline has the next of the deliveries. Prints,
after a tenth of the batches, half of them and all, the server's resident memory, the heap that is
still in use once its garbage was collected (by the JDK's ``jcmd``), its Python processes and the
memory that they alone use, and the time of a batch. Ends with exit code 1 if a pipeline has not
counted every line, the server was replaced, or it has gathered Python processes.
"""

import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import psutil

from benchmarks.deliveries import delivery
from benchmarks.page import Table, command, say
from benchmarks.servers import Bench, count, new_topic, serving, write_lines
from tally.context import open_context
from tally.spark.session import spark_session
from tally_local.stack.server import Part

LINES = 10
"""Of each partition, for each batch."""
PYTHON = "Python processes"
"""Children of the server, which are daemons and workers."""
PROCESSES = 20
"""By how many those of a minute's batches may differ."""


def measure(
    batches: int = 2_000,
    pipelines: int = 1,
    partitions: int = 4,
    deliveries: tuple[str, ...] = ("batch",),
) -> Iterator[Table]:
    """Count batch after batch.

    Args:
        batches: Of all pipelines.
        pipelines: Which take turns; at least one for each delivery.
        partitions: Of the topic.
        deliveries: Of the pipelines, in turns.

    Raises:
        RuntimeError: A line was not counted, the server was replaced, or processes have gathered.
    """
    topic = new_topic("memory")
    numbers = range(max(pipelines, len(deliveries)))
    keys = {
        f"memory{number}": f'topics = ["{topic}"]\nlevels = []\n{delivery(name, topic)}'
        for number, name in zip(numbers, cycle(deliveries), strict=False)
    }
    parts = (Part.KAFKA, Part.MYSQL, Part.SPARK)
    with serving(keys, {topic: partitions}, parts) as servers:
        spark = servers.settings.spark
        # As a program that counts one batch asks for a session.
        ctx = open_context(servers.settings, open_session=lambda: spark_session(spark, "memory"))
        first = _server(servers)
        used: dict[int, dict[str, float]] = {}
        seconds = []
        for number in range(batches):
            name = f"memory{number % len(numbers)}"
            if number % len(numbers) == 0:  # every pipeline reads the topic
                write_lines(servers, LINES * partitions, partitions)
            ran = count(ctx, name, LINES * partitions)
            seconds.append(max(one.seconds for one in ran))
            if number + 1 in {batches // 10, batches // 2, batches}:
                used[number + 1] = _used(_server(servers))
        is_same = _server(servers).pid == first.pid
    early, *_, late = used.values()
    yield Table(
        name="server memory",
        headers=["after batch", *early],
        rows=[[f"{n:,}", *(f"{value:,.0f}" for value in of.values())] for n, of in used.items()],
    )
    say(f"median from claim to commit {statistics.median(seconds):.2f} s")
    if not is_same:
        raise RuntimeError("the server was replaced")
    # A daemon lives for ten seconds behind its last task: how many there are depends on how long a
    # batch takes.
    if late[PYTHON] > early[PYTHON] + PROCESSES:
        raise RuntimeError("Python processes have gathered")


def _used(server: psutil.Process) -> dict[str, float]:
    """What a server has taken, and what it needs: a heap is filled before it is collected."""
    resident = server.memory_info().rss / 2**20
    jcmd = shutil.which("jcmd") or str(Path(server.exe()).with_name("jcmd"))
    for asked in ("GC.run", "GC.heap_info"):
        answer = subprocess.run(
            [jcmd, str(server.pid), asked], check=True, capture_output=True, text=True
        ).stdout
    generations = re.findall(r"total \d+K, used (\d+)K", answer)
    if not generations:
        raise ValueError(f"jcmd did not report the heap: {answer}")
    python = []
    for child in server.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            python.append(child.memory_full_info().uss / 2**20)
    return {
        "resident, MiB": resident,
        "heap in use without garbage, MiB": sum(map(int, generations)) / 1024,
        PYTHON: len(python),
        "their own memory, MiB": sum(python),
    }


def _server(servers: Bench) -> psutil.Process:
    (found,) = [p for p in servers.stack.processes.members(Part.SPARK) if p.name() == "java"]
    return found


if __name__ == "__main__":
    sys.exit(command(measure))
