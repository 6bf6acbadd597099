"""``make bench``: Tally beside its peers, and the tables and the picture of the documentation.

Runs the comparisons one after the other, in some hours, or those that are named. Each result
replaces its table in ``docs/performance.md``; at last the picture is drawn from it. With
``--quick`` few lines are counted in one round, which shows that everything works and nothing else:
the tables are printed, and the page stays as it is.
With ``--all`` the backlog is counted by tools too that are installed for it.
"""

import argparse
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import psutil

from benchmarks import (
    airflow_minutes,
    backlog,
    deliveries,
    outputs,
    page,
    scaling,
    server_memory,
    small_batch,
    wide,
)
from benchmarks.page import Table, say
from benchmarks.picture import BACKLOG, SVG, picture

QUICK_LINES = 200_000


COMPARISONS: dict[str, tuple[Callable[..., Iterator[Table]], dict[str, Any]]] = {
    "backlog": (backlog.measure, {"lines": QUICK_LINES, "rounds": 1}),
    "small-batch": (small_batch.measure, {"rounds": 1}),
    "scaling": (
        scaling.measure,
        {"lines": QUICK_LINES, "largest": 2 * QUICK_LINES, "rounds": 1},
    ),
    "wide": (wide.measure, {"partitions": (100,), "rounds": 1}),
    "deliveries": (deliveries.measure, {"lines": QUICK_LINES, "rounds": 1}),
    "outputs": (outputs.measure, {"outputs": QUICK_LINES}),
    "minutes": (airflow_minutes.measure, {"minutes": 2}),
    "memory": (server_memory.measure, {"batches": 40}),
}
"""Each with arguments by which it takes little time."""


def main() -> int:
    """Run the comparisons."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few lines, one round; only printed")
    parser.add_argument("--all", action="store_true", help="with tools that are installed for it")
    parser.add_argument("named", nargs="*", help=f"of {', '.join(COMPARISONS)}; all when none is")
    asked = parser.parse_args()
    if unknown := set(asked.named) - set(COMPARISONS):
        parser.error(f"no comparison: {', '.join(sorted(unknown))}")
    # The page names one machine, that of all tables.
    tables: Iterable[Table] = [] if asked.named else [_machine()]
    for name in asked.named or COMPARISONS:
        measure, little = COMPARISONS[name]
        options = {"peers": asked.all} if name == "backlog" else {}
        tables = chain(tables, measure(**options, **(little if asked.quick else {})))
    for table in tables:
        say(f"\n{table}\n")
        if not asked.quick:
            page.put(table)
    if not asked.quick:
        SVG.write_text(picture(page.get(BACKLOG)), encoding="utf-8")
    return 0


def _machine() -> Table:
    """What the figures were measured on."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^model name\s*: (.+)$", cpuinfo, re.MULTILINE)
    return Table(
        name="machine",
        headers=["processor", "cores", "memory, GiB", "Python", "PySpark"],
        rows=[
            [
                found[1] if found else platform.machine(),
                f"{os.cpu_count()}",
                f"{psutil.virtual_memory().total / 2**30:.0f}",
                platform.python_version(),
                version("pyspark"),
            ]
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
