"""How time and memory of a backlog grow: lines, partitions, cores, line formats, labels.

Usage: ``.tally/venv/bin/python -m benchmarks.scaling [--lines 10000000] [--rounds 5]
[--largest 50000000]``

Counts topics of a stack of its own, each variant by pipelines of its own, from plan to commit.
First variants take turns in one warm session. Then programs of their own take turns, each of which
counts a variant twice: the second time is shown, and the largest resident memory of the program's
JVM and of its Python. It ends with an error if a line was not counted.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from benchmarks.contest import take_turns
from benchmarks.lines import LINES_PER_MINUTE, write_lines
from benchmarks.page import Table
from benchmarks.servers import PARTITIONS, Bench, plan, say, serving
from tally.config.loading import load_settings
from tally.context import Context, open_context
from tally.counting.batch import run_batch
from tally.ledger.reading import batch_record
from tally.spark.session import spark_session

TABLE = "scaling"
TIMES = 2
"""Batches that a program of its own counts; the last one is measured."""
MALFORMED_MAX = 100_000

FORMAT = r"""line_format.time_format = "yyyy-MM-dd HH:mm:ss"
line_format.pattern = '^(?<time>\S+ \S+) (?<level>[A-Z]+) \[(?<service>[^\]]+)\]'
"""
# The lines print no milliseconds, which this layout asks for.
MALFORMED = f"""line_format.time_format = "yyyy-MM-dd HH:mm:ss.SSS"
line_format.pattern = '^(?<time>.{{23}}) (?<level>[A-Z]+)'
max_malformed_ratio = 1.0
max_malformed_per_batch = {MALFORMED_MAX}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """What is counted, and how."""

    title: str
    """What the table calls it."""
    lines: int
    partitions: int = PARTITIONS
    keys: str = ""
    """Keys of its pipelines, as TOML."""
    cores: int = 2
    base: str = "base"
    """The variant that it is compared to."""
    in_turns: bool = True
    """Whether it is counted in the common session."""

    @property
    def topic(self) -> str:
        """The topic that it reads; variants of the same lines share one."""
        return f"scaling-{self.lines}-{self.partitions}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """How a program of its own counted."""

    seconds: float
    """The last batch, from plan to commit."""
    jvm_mib: float
    """The largest resident memory."""
    python_mib: float
    """The same of the driver."""


def variants(lines: int, largest: int) -> dict[str, Variant]:
    """What is compared, by the names of its pipelines."""
    few, minute = min(lines, MALFORMED_MAX), min(lines, LINES_PER_MINUTE)
    fixed = Variant(
        title=f"{lines:,} lines of the fixed layout, {PARTITIONS} partitions", lines=lines
    )
    found = {
        "base": fixed,
        "levels": Variant(
            title="two labels: level, partition",
            lines=lines,
            keys='labels = ["level", "partition"]',
        ),
        "pattern": Variant(title="a pattern", lines=lines, keys=FORMAT),
        "labels": Variant(
            title="a pattern, two labels: service, level",
            lines=lines,
            keys=f'{FORMAT}labels = ["service", "level"]',
            base="pattern",
        ),
        "one": Variant(title="1 partition", lines=lines, partitions=1),
        "sixteen": Variant(title="16 partitions", lines=lines, partitions=16),
        "many": Variant(title="64 partitions", lines=lines, partitions=64),
        "few": Variant(title=f"{few:,} lines", lines=few),
        "malformed": Variant(
            title=f"{few:,} malformed lines", lines=few, keys=MALFORMED, base="few"
        ),
        "minute": Variant(title=f"{minute:,} lines", lines=minute),
        "malformed_minute": Variant(
            title=f"{minute:,} malformed lines", lines=minute, keys=MALFORMED, base="minute"
        ),
        "core": Variant(title="1 core", lines=lines, cores=1, in_turns=False),
        "one_core": Variant(
            title="1 partition, 1 core", lines=lines, partitions=1, cores=1, in_turns=False
        ),
    }
    for count in sorted({largest // 10, largest} - {lines}):
        found[f"lines{count}"] = Variant(title=f"{count:,} lines", lines=count, in_turns=False)
    return found


def main() -> int:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=50_000_000)
    parser.add_argument("--alone", nargs="+", metavar="PIPELINE", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        say(json.dumps(_count_alone(asked.alone, asked.cores)))
    else:
        say("\n".join(measure(asked.lines, asked.rounds, asked.largest).lines()))
    return 0


def measure(lines: int, rounds: int, largest: int) -> Table:
    """Run the comparison.

    Raises:
        RuntimeError: A pipeline has not counted every line.
        subprocess.CalledProcessError: A program of its own has failed.
    """
    compared = variants(lines, largest)
    stamp = time.time_ns()
    names = {name: [f"{name}_{n}" for n in range((1 + TIMES) * rounds + 1)] for name in compared}
    pipelines = {
        pipeline: f'topics = ["{variant.topic}-{stamp}"]\n'
        f"max_records_per_partition = {variant.lines}\n{variant.keys}"
        for name, variant in compared.items()
        for pipeline in names[name]
    }
    topics = {v.topic: v for v in compared.values()}
    with serving(pipelines, {f"{t}-{stamp}": v.partitions for t, v in topics.items()}) as servers:
        for topic, variant in topics.items():
            say(f"writing {variant.lines:,} lines over {variant.partitions} partitions")
            write_lines(servers, variant.lines, variant.partitions, topic=f"{topic}-{stamp}")
        unused = {name: iter(pipelines) for name, pipelines in names.items()}
        with spark_session(servers.settings.spark, "scaling") as spark:
            contestants = {
                name: _in_session(servers, spark, variant, unused[name])
                for name, variant in compared.items()
                if variant.in_turns
            }
            warm = take_turns(contestants, rounds)
        alone: dict[str, list[Alone]] = {name: [] for name in compared}
        for number in range(rounds):
            for name, variant in compared.items():
                found = _in_program(servers, variant, [next(unused[name]) for _ in range(TIMES)])
                say(f"  program {number + 1} of {name}: {found}")
                alone[name].append(found)
    return Table(
        name=TABLE,
        headers=["counted", "warm, s", "ratio", "alone, s", "ratio", "JVM, MiB", "Python, MiB"],
        rows=list(_rows(compared, warm, alone)),
    )


def _rows(
    compared: Mapping[str, Variant], warm: Mapping[str, float], alone: Mapping[str, list[Alone]]
) -> Iterator[list[str]]:
    seconds = {name: statistics.median(a.seconds for a in found) for name, found in alone.items()}
    for name, variant in compared.items():
        title = variant.title
        if variant.base != "base":
            title += f" (ratio to {compared[variant.base].title})"
        took = warm.get(name)
        yield [
            title,
            *(["", ""] if took is None else [f"{took:.2f}", f"{took / warm[variant.base]:.2f}"]),
            f"{seconds[name]:.2f}",
            f"{seconds[name] / seconds[variant.base]:.2f}",
            f"{statistics.median(a.jvm_mib for a in alone[name]):,.0f}",
            f"{statistics.median(a.python_mib for a in alone[name]):,.0f}",
        ]


def _in_session(
    servers: Bench, spark: SparkSession, variant: Variant, pipelines: Iterator[str]
) -> Callable[[], float]:
    ctx = servers.context(spark)
    return lambda: _count(ctx, next(pipelines), variant.lines)


def _count(ctx: Context, pipeline: str, lines: int | None = None) -> float:
    """Count one batch; the seconds from plan to commit."""
    began = time.perf_counter()
    batch_id = plan(ctx, pipeline)
    run_batch(ctx, batch_id)
    took = time.perf_counter() - began
    with ctx.database.transaction(read_only=True) as tx:
        records = batch_record(tx, batch_id).records
    if lines is not None and records != lines:
        raise RuntimeError(f"{pipeline} has counted {records} records")
    return took


def _in_program(servers: Bench, variant: Variant, pipelines: list[str]) -> Alone:
    argv = [sys.executable, "-m", "benchmarks.scaling", "--alone", *pipelines]
    told = subprocess.run(
        [*argv, "--cores", str(variant.cores)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=servers.environment(),
    ).stdout
    return Alone(**json.loads(told.splitlines()[-1]))


def _count_alone(pipelines: list[str], cores: int) -> dict[str, float]:
    """What the program of its own does: counts, and says how long and how much memory it took."""
    settings = load_settings()
    spark = settings.spark.model_copy(update={"master": f"local[{cores}]"})
    with spark_session(spark, pipelines[0]) as session:
        ctx = open_context(settings, open_session=lambda: nullcontext(session))
        seconds = [_count(ctx, pipeline) for pipeline in pipelines]
        (jvm,) = [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]
        return {
            "seconds": seconds[-1],
            "jvm_mib": peak_mib(jvm.pid),
            "python_mib": peak_mib(psutil.Process().pid),
        }


def peak_mib(pid: int) -> float:
    """The largest resident memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    if match is None:
        raise RuntimeError(f"/proc/{pid}/status has no VmHWM")
    return int(match[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
