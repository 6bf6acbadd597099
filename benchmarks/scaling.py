"""How time and memory of a backlog grow: lines, partitions, cores, line formats, labels.

Usage: ``.tally/venv/bin/python -m benchmarks.scaling [--lines 10000000] [--rounds 3]
[--largest 50000000]``

Counts topics of a stack of its own, each variant by pipelines of its own, from plan to commit.
First variants take turns in one warm session. Then programs of their own take turns, each of which
counts a variant twice: the second time is shown, and the largest resident memory of the program's
JVM and of its Python. It ends with an error if a line was not counted.
"""

import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.alone import Alone, count_alone
from benchmarks.contest import Rounds, take_turns
from benchmarks.page import Table, command, say
from benchmarks.servers import LINES_PER_MINUTE, PARTITIONS, new_topic, serving, write_lines
from tally.spark.session import spark_session

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
    def topic(self) -> tuple[int, int]:
        """Lines and partitions of the topic that it reads, by which variants share one."""
        return self.lines, self.partitions


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


def measure(lines: int = 10_000_000, rounds: int = 3, largest: int = 50_000_000) -> Iterator[Table]:
    """Run the comparison.

    Raises:
        RuntimeError: A pipeline has not counted every line.
        subprocess.CalledProcessError: A program of its own has failed.
    """
    compared = variants(lines, largest)
    topics = {v.topic: new_topic(f"scaling-{v.lines}-{v.partitions}") for v in compared.values()}
    names = {name: [f"{name}_{n}" for n in range((1 + TIMES) * rounds + 1)] for name in compared}
    pipelines = {
        pipeline: f'topics = ["{topics[variant.topic]}"]\n'
        f"max_records_per_partition = {variant.lines}\n{variant.keys}"
        for name, variant in compared.items()
        for pipeline in names[name]
    }
    with serving(pipelines, {topics[shape]: shape[1] for shape in topics}) as servers:
        written = {}
        for (count, partitions), topic in topics.items():
            say(f"writing {count:,} lines over {partitions} partitions")
            written[count, partitions] = write_lines(servers, count, partitions, topic=topic)
        unused = {name: iter(pipelines) for name, pipelines in names.items()}
        with spark_session(servers.settings.spark, "scaling") as spark:
            contestants = {
                name: Rounds(
                    servers=servers,
                    spark=spark,
                    written=written[variant.topic],
                    pipelines=unused[name],
                    by_minute=False,
                )
                for name, variant in compared.items()
                if variant.in_turns
            }
            warm = take_turns(contestants, rounds)
        alone: dict[str, list[Alone]] = {name: [] for name in compared}
        for _ in range(rounds):
            for name, variant in compared.items():
                each = [next(unused[name]) for _ in range(TIMES)]
                master = f"local[{variant.cores}]"
                alone[name].append(count_alone(servers, each, variant.lines, master=master))
    yield Table(
        name="scaling",
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


if __name__ == "__main__":
    sys.exit(command(measure))
