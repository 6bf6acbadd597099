"""``make chaos``: break every component, and check that the counts hold.

Two campaigns, one after the other: the first one lets every statement of the commit path meet every
kind of fault, the second one kills, pauses and cuts the real processes of the whole system.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tally_local.stack.interruption import interruptible
from tests.chaos import commit_path
from tests.chaos.campaign import Orders, Report, run_campaign
from tests.chaos.commit_path import CommitPathReport
from tests.chaos.tables import COMMIT_PATH, PROCESSES, of_processes, of_statements, of_traces
from tests.properties.operations import DELIVERIES
from tests.servers import PROJECT

COMMIT_PATH_SHARE: Final = 0.25
"""Part of the time that the first campaign gets."""


def main() -> int:
    """Run the campaigns; returns 0 when the counts were right."""
    options = _options()
    reports: dict[str, Any] = {}
    problems: list[str] = []
    with interruptible():
        if options.only != PROCESSES:
            share = 1.0 if options.only else COMMIT_PATH_SHARE
            statements = _break_statements(options, options.duration_s * share)
            problems += statements.mismatches + statements.problems
            reports[COMMIT_PATH] = {**asdict(statements), "history": None}
            _write(options.json, reports)
        if options.only != COMMIT_PATH:
            share = 1.0 if options.only else 1 - COMMIT_PATH_SHARE
            processes = _kill_processes(options, options.duration_s * share)
            problems += processes.problems
            reports[PROCESSES] = asdict(processes)
            _write(options.json, reports)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("the counts do not hold" if problems else "every line counts once")
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    add = parser.add_argument
    add("--duration-s", type=float, default=600, help="how long faults come")
    add("--faults", type=int, help="how many the first campaign makes at most")
    traces = "how many short pipelines the first campaign checks, in any time"
    add("--traces", type=int, help=traces)
    processes = "in how many processes the short pipelines run"
    add("--processes", type=int, default=2 * (os.cpu_count() or 1), help=processes)
    add("--seed", type=int, default=1, help="of lines, faults and moments")
    add("--only", choices=[COMMIT_PATH, PROCESSES], help="one campaign alone")
    add("--rate", type=int, default=200, help="lines a second")
    gap = "shortest and longest time between two kills"
    add("--gap-s", type=float, nargs=2, default=(0.5, 4.0), help=gap)
    first = "the first campaign counts by level and in bytes"
    add("--by-level", action="store_true", help=first)
    warm = "everything counts on the Spark server of tally up"
    add("--warm", action="store_true", help=warm)
    cluster = "and this one on the cluster of tally up --cluster"
    add("--cluster", action="store_true", help=cluster)
    delivery = "how the pipeline of the second campaign commits; the first has all"
    add("--delivery", choices=DELIVERIES, default="batch", help=delivery)
    add("--without-airflow", action="store_true", help="only the command line")
    add("--json", type=Path, help="where the reports are written, too")
    return parser.parse_args()


def _write(path: Path | None, reports: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


def _break_statements(options: argparse.Namespace, duration_s: float) -> CommitPathReport:
    orders = commit_path.Orders(
        seed=options.seed,
        faults=options.faults,
        duration_s=None if options.traces else duration_s,
        traces=options.traces,
        by_level=options.by_level,
    )
    report = commit_path.run(orders, _say, options.processes if options.traces else 1)
    _say("\n".join(["", *of_statements([asdict(report)])]))
    if options.traces:
        _say("\n".join(of_traces(asdict(report))))
    return report


def _kill_processes(options: argparse.Namespace, duration_s: float) -> Report:
    orders = Orders(
        seed=options.seed,
        duration_s=duration_s,
        gap_s=(options.gap_s[0], options.gap_s[1]),
        rate=options.rate,
        with_airflow=not options.without_airflow,
        keeps_spark=options.warm or options.cluster,
        on_cluster=options.cluster,
        delivery=options.delivery,
        home=PROJECT / ".tally" / "chaos",
    )
    report = run_campaign(orders, _say)
    found = asdict(report)
    _say("\n".join(["", *of_processes([found])]))
    for key in ("batches", "exits", "airflow_runs", "looks"):
        _say(f"{key}: {found[key]}")
    return report


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
