"""The driver's memory for a large output, by delivery.

Usage: ``.tally/venv/bin/python -m benchmarks.outputs [--outputs 10000000]``

Programs of their own count on the stack's cluster in client mode, so that driver and executors are
different processes. Each delivery counts a hundredth of its outputs, and all of them: counts of a
line each, or lines that are kept, of which there are a tenth as many. Ends with an error if a line
was not counted.
"""

import sys
from collections.abc import Iterator
from itertools import chain

from benchmarks.alone import Alone, count_alone
from benchmarks.deliveries import DELIVERIES, delivery
from benchmarks.page import Table, command
from benchmarks.servers import PARTITIONS, new_topic, serving, write_lines
from tally_local.stack.server import Part

# Each line has a number, so by it each line is a row of the counts.
BY_LINE = r"""line_format.time_format = "yyyy-MM-dd HH:mm:ss"
line_format.pattern = '^(?<time>\S+ \S+) (?<level>[A-Z]+) .*request (?<number>\d+)'
labels = ["number"]
max_series_per_batch = 100000000
"""
COUNTED = ("batch", "partition")
"""They keep no lines."""
KEYS = "levels = []\npatience_s = 20000\nmax_records_per_partition = 2000000000\n"


def measure(outputs: int = 10_000_000) -> Iterator[Table]:
    """The driver's memory for few outputs and for many.

    Raises:
        subprocess.CalledProcessError: A program has failed, or not counted every line.
    """
    sizes = {
        name: [full // 100, full]
        for name in DELIVERIES
        for full in [outputs if name in COUNTED else outputs // 10]
    }
    topics = {size: new_topic(f"outputs-{size}") for size in sorted(set(chain(*sizes.values())))}
    pipelines = {
        f"{name}{size}": f'topics = ["{topics[size]}"]\n{KEYS}{delivery(name, topics[size])}'
        + (BY_LINE if name in COUNTED else "")
        for name, both in sizes.items()
        for size in both
    }
    found: dict[str, list[Alone]] = {name: [] for name in DELIVERIES}
    parts = (Part.KAFKA, Part.MYSQL, Part.CLUSTER)
    with serving(pipelines, dict.fromkeys(topics.values(), PARTITIONS), parts) as servers:
        for size, topic in topics.items():
            write_lines(servers, size, topic=topic)
            for name, both in sizes.items():
                if size in both:
                    found[name].append(count_alone(servers, [f"{name}{size}"], size))
    yield Table(
        name="outputs",
        headers=[
            "delivery",
            "outputs",
            "seconds",
            *("JVM, MiB, a hundredth of them", "JVM, MiB"),
            *("Python, MiB, a hundredth of them", "Python, MiB"),
        ],
        rows=[
            [
                f"`{name}`",
                f"{sizes[name][1]:,}",
                f"{many.seconds:.0f}",
                *(f"{few.jvm_mib:,.0f}", f"{many.jvm_mib:,.0f}"),
                *(f"{few.python_mib:,.0f}", f"{many.python_mib:,.0f}"),
            ]
            for name, (few, many) in found.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(command(measure))
