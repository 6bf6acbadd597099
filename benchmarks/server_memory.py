"""How much memory a warm Spark Connect server needs, batch after batch.

Usage: ``.tally/venv/bin/python -m benchmarks.server_memory [--batches 1000] [--pipelines 1]
[--partitions 4]``

Counts so many small batches on the local stack's own server, each in a session of its own as a
task of Airflow does, the pipelines in turns. Prints, after a tenth of the batches and after all of
them, the server's resident memory and the heap that is still in use once its garbage was collected
(by the JDK's ``jcmd``), and the time of a batch. Ends with exit code 1 if a pipeline has not
counted every line, or the server was replaced.
"""

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.reader_options import produce
from benchmarks.servers import Bench, bench, plan, say
from tally.app.context import open_context
from tally.ledger.results import lines_by_minute
from tally.ledger.tables import Tables
from tally.pipeline.run import run_batch
from tally.spark.session import spark_session
from tally_local.stack.server import Part

LINES = 10


def main() -> int:
    """Run it once and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--pipelines", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    asked = parser.parse_args()
    names = [f"memory{number}" for number in range(asked.pipelines)]
    parts = [Part.KAFKA, Part.MYSQL, Part.SPARK]
    with bench(names, "levels = []", partitions=asked.partitions, parts=parts) as servers:
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
        batch_id = plan(ctx, names[number % len(names)])
        began = time.perf_counter()
        run_batch(ctx, batch_id)
        seconds.append(time.perf_counter() - began)
        if number + 1 in {batches // 10, batches}:
            used[number + 1] = _used(_server(servers))
    say(f"{len(names)} pipelines of {partitions} partitions, one session for each batch")
    for number, mib in used.items():
        say(
            f"  after batch {number:5,}: {mib.resident:7,.0f} MiB resident, "
            f"{mib.live:5,.0f} MiB of heap in use without garbage"
        )
    early, late = (used[number].live for number in (batches // 10, batches))
    say(
        f"  {late / early:.2f} of the first heap; median of a batch "
        f"{statistics.median(seconds):.2f} s"
    )
    with ctx.database.transaction(read_only=True) as tx:
        found = [sum(lines_by_minute(tx, Tables(result=name)).values()) for name in names]
    is_right = found == [produced] * len(names)
    is_same = _server(servers).pid == first.pid
    say(f"every line counted: {'yes' if is_right else f'NO: {found} of {produced}'}")
    say(f"one server all the time: {'yes' if is_same else 'NO'}")
    return 0 if is_right and is_same else 1


@dataclass(frozen=True, slots=True)
class _Used:
    """Memory in MiB."""

    resident: float
    live: float


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
    return _Used(resident, sum(map(int, generations)) / 1024)


def _server(servers: Bench) -> psutil.Process:
    (found,) = [p for p in servers.stack.members(Part.SPARK) if p.name() == "java"]
    return found


if __name__ == "__main__":
    sys.exit(main())
