"""How much memory a warm Spark Connect server needs, batch after batch.

Usage: ``.tally/venv/bin/python -m benchmarks.server_memory [--batches 1000] [--pipelines 1]
[--partitions 4] [--deliveries batch partition rows procedure files]``

Counts so many small batches on the local stack's own server, each in a session of its own as a
task of Airflow does, the pipelines in turns; each pipeline has the next of the deliveries. Prints,
after a tenth of the batches, half of them and all, the server's resident memory, the heap that is
still in use once its garbage was collected (by the JDK's ``jcmd``), its Python processes and the
memory that they alone use, and the time of a batch. Ends with exit code 1 if a pipeline has not
counted every line, the server was replaced, or it has gathered Python processes.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.reader_options import produce
from benchmarks.servers import Bench, say, serving
from tally.context import open_context
from tally.counting.plan import plan_batch
from tally.ledger.results import lines_by_minute
from tally.ledger.tables import Tables
from tally.replay.run import run_or_replan
from tally.spark.session import spark_session
from tally_local.stack.server import Part

LINES = 10
PROCESSES = 20
"""By how many those of a minute's batches may differ."""


def main() -> int:
    """Run it once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--pipelines", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--deliveries", nargs="+", default=["batch"])
    asked = parser.parse_args()
    names = [f"memory{number}" for number in range(max(asked.pipelines, len(asked.deliveries)))]
    topic = f"memory-{time.time_ns()}"
    with TemporaryDirectory() as files:
        pipelines = {
            name: f'topics = ["{topic}"]\nlevels = []\ndelivery = "{delivery}"\n'
            + (f'files_url = "{files}/{name}"\n' if delivery == "files" else "")
            for name, delivery in zip(names, cycle(asked.deliveries), strict=False)
        }
        parts = [Part.KAFKA, Part.MYSQL, Part.SPARK]
        with serving(pipelines, {topic: asked.partitions}, parts) as servers:
            return _measure(servers, names, asked.batches, asked.partitions)


def _measure(servers: Bench, names: list[str], batches: int, partitions: int) -> int:
    # The program that counts asks for a session for each batch.
    ctx = open_context(
        servers.settings, open_session=lambda: spark_session(servers.settings.spark, names[0])
    )
    seconds: list[float] = []
    used = {}
    first = _server(servers)
    produced = 0
    for number in range(batches):
        if number % len(names) == 0:  # every pipeline reads the topic
            produce(servers, dict.fromkeys(range(partitions), LINES))
            produced += LINES * partitions
        planned = plan_batch(ctx, names[number % len(names)]).batches
        began = time.perf_counter()
        run_or_replan(ctx, [batch.batch_id for batch in planned])
        seconds.append(time.perf_counter() - began)
        if number + 1 in {batches // 10, batches // 2, batches}:
            used[number + 1] = _used(_server(servers))
    say(f"{len(names)} pipelines of {partitions} partitions, one session for each batch")
    for number, mib in used.items():
        say(
            f"  after batch {number:5,}: {mib.resident:7,.0f} MiB resident, "
            f"{mib.live:5,.0f} MiB of heap in use without garbage, "
            f"{mib.processes} Python processes of {mib.python:,.0f} MiB"
        )
    early, late = (used[number] for number in (batches // 10, batches))
    say(
        f"  {late.live / early.live:.2f} of the first heap; median of a batch "
        f"{statistics.median(seconds):.2f} s"
    )
    with ctx.database.transaction(read_only=True) as tx:
        found = [sum(lines_by_minute(tx, Tables(result=name)).values()) for name in names]
    is_right = found == [produced] * len(names)
    is_same = _server(servers).pid == first.pid
    say(f"every line counted: {'yes' if is_right else f'NO: {found} of {produced}'}")
    say(f"one server all the time: {'yes' if is_same else 'NO'}")
    # A daemon lives for ten seconds behind its last task: how many there are depends on how long a
    # batch takes.
    is_flat = late.processes <= early.processes + PROCESSES
    say(f"no more processes than before: {'yes' if is_flat else 'NO'}")
    return 0 if is_right and is_same and is_flat else 1


@dataclass(frozen=True, slots=True)
class _Used:
    """Memory in MiB."""

    resident: float
    live: float
    processes: int
    """Children of the server, which are daemons and workers of Python."""
    python: float
    """What they use that no other process shares."""


def _used(server: psutil.Process) -> _Used:
    """What a server has taken, and what it needs: a heap is filled before it is collected."""
    resident = server.memory_info().rss / 2**20
    jcmd = shutil.which("jcmd") or str(Path(server.exe()).with_name("jcmd"))
    for command in ("GC.run", "GC.heap_info"):
        said = subprocess.run(
            [jcmd, str(server.pid), command], check=True, capture_output=True, text=True
        ).stdout
    generations = re.findall(r"total \d+K, used (\d+)K", said)
    if not generations:
        raise ValueError(f"jcmd does not tell the heap: {said}")
    python = []
    for child in server.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            python.append(child.memory_full_info().uss / 2**20)
    return _Used(resident, sum(map(int, generations)) / 1024, len(python), sum(python))


def _server(servers: Bench) -> psutil.Process:
    (found,) = [p for p in servers.stack.members(Part.SPARK) if p.name() == "java"]
    return found


if __name__ == "__main__":
    sys.exit(main())
