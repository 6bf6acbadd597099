"""``make chaos``: break every component, and check that the counts hold.

Two campaigns, one after the other: the first one lets every statement of the commit path meet every
kind of fault, the second one kills, pauses and cuts the real processes of the whole system.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tally_local.stack.interruption import interruptible
from tests.chaos import commit_path
from tests.chaos.campaign import Orders, Report, run_campaign
from tests.chaos.commit_path import CampaignError, CommitPathReport
from tests.chaos.system import PROJECT
from tests.chaos.tables import COMMIT_PATH, PROCESSES
from tests.properties.operations import DELIVERIES

COMMIT_PATH_SHARE: Final = 0.25
"""Part of the time that the first campaign gets."""


def main() -> int:
    """Run the campaigns; returns 0 when the counts were right."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--duration-s", type=float, default=600, help="how long faults come")
    parser.add_argument("--faults", type=int, help="how many the first campaign makes at most")
    parser.add_argument("--seed", type=int, default=1, help="of lines, faults and moments")
    parser.add_argument("--only", choices=[COMMIT_PATH, PROCESSES], help="one campaign alone")
    parser.add_argument("--rate", type=int, default=200, help="lines a second")
    parser.add_argument(
        "--gap-s",
        type=float,
        nargs=2,
        default=(0.5, 4.0),
        metavar=("SHORTEST", "LONGEST"),
        help="time between two kills",
    )
    parser.add_argument(
        "--by-level", action="store_true", help="the first campaign counts by level and in bytes"
    )
    parser.add_argument(
        "--warm", action="store_true", help="everything counts on the Spark server of tally up"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="and this one on the cluster of tally up --cluster"
    )
    parser.add_argument(
        "--delivery",
        choices=DELIVERIES,
        default="batch",
        help="how the pipeline of the second campaign commits; the first has all",
    )
    parser.add_argument("--without-airflow", action="store_true", help="only the command line")
    parser.add_argument("--json", type=Path, help="where the reports are written, too")
    options = parser.parse_args()
    reports: dict[str, Any] = {}
    problems: list[str] = []
    with interruptible():
        if options.only != PROCESSES:
            share = 1.0 if options.only else COMMIT_PATH_SHARE
            of_statements = _break_statements(options, options.duration_s * share, problems)
            reports[COMMIT_PATH] = of_statements.summary()
            _write(options.json, reports)
        if options.only != COMMIT_PATH:
            share = 1.0 if options.only else 1 - COMMIT_PATH_SHARE
            of_processes = _kill_processes(options, options.duration_s * share)
            problems += of_processes.problems
            reports[PROCESSES] = asdict(of_processes)
            _write(options.json, reports)
    for problem in problems:
        print(f"PROBLEM: {problem}")
    print("the counts do not hold" if problems else "every line counts once")
    return 1 if problems else 0


def _write(path: Path | None, reports: dict[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


def _break_statements(
    options: argparse.Namespace, duration_s: float, problems: list[str]
) -> CommitPathReport:
    try:
        report = commit_path.run(
            options.faults, duration_s, options.seed, _say, by_level=options.by_level
        )
    except CampaignError as error:
        problems.append(str(error))
        report = error.report
    _say(
        f"\nseed {report.seed}, {report.seconds:.0f} s: {report.faults:,} faults at "
        f"{len(report.coverage):,} statements of {len(report.operations)} operations, "
        f"{report.commits:,} commits, {report.commits_under_fault:,} by what a fault had met, "
        f"{len(report.mismatches)} mismatches"
    )
    for kind, count in report.kinds.items():
        _say(f"{kind:<24}{count:>7,}")
    _say(f"{len(report.never)} pairs of statement and kind were never met\n")
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
    _say(_text(report))
    return report


def _text(report: Report) -> str:
    lines = [
        "",
        f"seed {report.seed}, {report.duration_s:.0f} s of faults on {report.machine}",
        f"{sum(report.faults.values()):,} faults, {sum(report.commits.values()):,} commits",
        f"while faults came: {report.commits_under_fire:,} commits",
        f"{report.lines:,} lines in {report.partitions} partitions",
        f"all counted {report.catching_up_s:.0f} s after the last fault",
        "",
        f"{'fault':<36}{'done':>6}   seconds to the next commit: median, longest",
    ]
    for name, count in sorted(report.faults.items()):
        wait = report.to_next_commit_s.get(name, {})
        lines.append(
            f"{name:<36}{count:>6}{wait.get('median', 0):>12.1f}{wait.get('longest', 0):>10.1f}"
        )
    lines += [
        "",
        f"batches: {report.batches}",
        f"commands by exit code: {report.exits}",
        f"runs of Airflow: {report.airflow_runs}",
        f"MiB of the largest process, in each quarter: {report.memory_mib}",
        f"looks at the result while faults came: {report.looks}",
        f"lost {report.lost}, duplicated {report.duplicated}, invented {report.invented}",
        "",
    ]
    return "\n".join(lines)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
