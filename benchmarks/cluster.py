"""Spark's cluster: two workers beside one, and the driver's memory for a large output.

Usage: ``.tally/venv/bin/python -m benchmarks.cluster [--lines 10000000] [--rounds 3]
[--outputs 10000000]``

Programs of their own count on the stack's cluster in client mode, so that driver and executors are
different processes. First two executors of one core, on a worker each, and one of two cores take
turns; the last of four batches of each program is measured, as each JVM must compile for itself.
Then each delivery counts a hundredth of the outputs, and all of them: counts of a line each, or
lines that are kept. Ends with an error if a line was not counted.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import psutil

from benchmarks.lines import write_lines
from benchmarks.page import Table
from benchmarks.scaling import peak_mib
from benchmarks.servers import PARTITIONS, PROJECT, Bench, say, serving
from tally.config.loading import load_settings
from tally.context import Context, open_context
from tally.counting.plan import plan_batch
from tally.replay.run import run_or_replan
from tally.spark.session import spark_session
from tally_local.stack.server import Part

PARTS = (Part.KAFKA, Part.MYSQL, Part.CLUSTER)
LAYOUTS: Mapping[str, dict[str, str]] = {
    "two workers, one core each": {"spark.executor.cores": "1", "spark.cores.max": "2"},
    "one worker, two cores": {"spark.executor.cores": "2", "spark.cores.max": "2"},
}
TIMES = 4
"""Batches that a program counts to compare workers; the last one is measured."""
DELIVERIES = ("batch", "partition", "rows", "procedure", "files")
# Each line has a number, so by it each line is a row of the counts.
BY_LINE = r"""line_format.time_format = "yyyy-MM-dd HH:mm:ss"
line_format.pattern = '^(?<time>\S+ \S+) (?<level>[A-Z]+) .*request (?<number>\d+)'
labels = ["number"]
max_series_per_batch = 100000000
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """How a program of its own has counted."""

    seconds: float
    """The last pipeline, from plan to commit."""
    records: int
    """What that has read."""
    jvm_mib: float
    """The largest resident memory of the driver's JVM."""
    python_mib: float
    """The same of its Python."""


def main() -> int:
    """Run the comparison and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--outputs", type=int, default=10_000_000)
    parser.add_argument("--alone", nargs="+", metavar="PIPELINE", help=argparse.SUPPRESS)
    parser.add_argument("--conf", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        say(json.dumps(_count_alone(asked.alone, asked.conf)))
        return 0
    if asked.rounds:
        say("\n".join(workers(asked.lines, asked.rounds).lines()))
    if asked.outputs:
        say("\n".join(outputs(asked.outputs).lines()))
    return 0


def workers(lines: int, rounds: int) -> Table:
    """Two executors of one core beside one of two.

    Raises:
        RuntimeError: A pipeline has not counted every line.
        subprocess.CalledProcessError: A program of its own has failed.
    """
    topic = f"cluster-{time.time_ns()}"
    keys = f'topics = ["{topic}"]\nmax_records_per_partition = {lines}\n'
    names = [f"cluster{n}" for n in range(TIMES * rounds * len(LAYOUTS))]
    with serving(dict.fromkeys(names, keys), {topic: PARTITIONS}, PARTS) as servers:
        write_lines(servers, lines, PARTITIONS)
        unused = iter(names)
        found: dict[str, list[float]] = {title: [] for title in LAYOUTS}
        for _ in range(rounds):
            for title, conf in LAYOUTS.items():
                pipelines = [next(unused) for _ in range(TIMES)]
                ran = _in_program(servers, pipelines, conf, lines)
                say(f"  {title}: {ran}")
                found[title].append(ran.seconds)
    medians = {title: statistics.median(seconds) for title, seconds in found.items()}
    *_, base = medians.values()
    return Table(
        name="cluster",
        headers=[f"{lines:,} lines", "seconds", "million lines/s", "rate of the last"],
        rows=[
            [title, f"{s:.2f}", f"{lines / s / 1e6:.2f}", f"{base / s:.2f}"]
            for title, s in medians.items()
        ],
    )


def outputs(most: int) -> Table:
    """The driver's memory for few outputs and for many.

    Raises:
        RuntimeError: A pipeline has not counted every line.
        subprocess.CalledProcessError: A program of its own has failed.
    """
    stamp = time.time_ns()
    sizes = (most // 100, most)
    pipelines = {
        f"{delivery}{size}": _outputs_of(delivery, f"outputs-{size}-{stamp}")
        for delivery in DELIVERIES
        for size in sizes
    }
    topics = {f"outputs-{size}-{stamp}": PARTITIONS for size in sizes}
    found: dict[str, dict[int, Program]] = {delivery: {} for delivery in DELIVERIES}
    with serving(pipelines, topics, PARTS) as servers:
        for size in sizes:
            write_lines(servers, size, PARTITIONS, topic=f"outputs-{size}-{stamp}")
            for delivery in DELIVERIES:
                ran = _in_program(servers, [f"{delivery}{size}"], {}, size)
                say(f"  {delivery}, {size:,}: {ran}")
                found[delivery][size] = ran
    few, many = sizes
    return Table(
        name="outputs",
        headers=[
            "delivery",
            f"seconds, {many:,}",
            f"JVM, MiB, {few:,}",
            f"JVM, MiB, {many:,}",
            f"Python, MiB, {few:,}",
            f"Python, MiB, {many:,}",
        ],
        rows=[
            [
                f"`{delivery}`",
                f"{of[many].seconds:.0f}",
                *(f"{of[size].jvm_mib:,.0f}" for size in sizes),
                *(f"{of[size].python_mib:,.0f}" for size in sizes),
            ]
            for delivery, of in found.items()
        ],
    )


def _outputs_of(delivery: str, topic: str) -> str:
    """The keys of a pipeline to which each line is an output."""
    keys = f'topics = ["{topic}"]\nlevels = []\ndelivery = "{delivery}"\npatience_s = 20000\n'
    keys += "max_records_per_partition = 2000000000\n"
    if delivery == "files":
        keys += f'files_url = "{PROJECT}/.tally/bench/{topic}"\n'
    return keys + (BY_LINE if delivery in {"batch", "partition"} else "")


def _in_program(
    servers: Bench, pipelines: list[str], conf: Mapping[str, str], lines: int
) -> Program:
    argv = [sys.executable, "-m", "benchmarks.cluster", "--alone", *pipelines]
    told = subprocess.run(
        [*argv, "--conf", json.dumps(dict(conf))],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**servers.environment(), "PYTHONPATH": str(PROJECT)},
    ).stdout
    ran = Program(**json.loads(told.splitlines()[-1]))
    if ran.records != lines:
        raise RuntimeError(f"{pipelines[-1]} has counted {ran.records} records")
    return ran


def _count_alone(pipelines: list[str], conf: Mapping[str, str]) -> dict[str, float]:
    """What the program of its own does: counts, and says how long and how much memory it took."""
    settings = load_settings()
    own = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"]}
    spark = settings.spark.model_copy(update={"conf": {**settings.spark.conf, **own, **conf}})
    with spark_session(spark, pipelines[0]) as session:
        ctx = open_context(settings, open_session=lambda: nullcontext(session))
        for pipeline in pipelines:
            began = time.perf_counter()
            records = _count(ctx, pipeline)
            took = time.perf_counter() - began
        (jvm,) = [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]
        return {
            "seconds": took,
            "records": records,
            "jvm_mib": peak_mib(jvm.pid),
            "python_mib": peak_mib(psutil.Process().pid),
        }


def _count(ctx: Context, pipeline: str) -> int:
    """Plan and count what there is; how many records that were."""
    ran = run_or_replan(ctx, [batch.batch_id for batch in plan_batch(ctx, pipeline).batches])
    return sum(totals.records for one in ran for totals in one.totals.values())


if __name__ == "__main__":
    sys.exit(main())
