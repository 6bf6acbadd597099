"""``make chaos``: a campaign from the command line."""

import argparse
import sys
from pathlib import Path

from tally.stack.interruption import interruptible
from tests.chaos.campaign import Orders, Report, run_campaign
from tests.chaos.system import PROJECT


def main() -> int:
    """Run a campaign; 0 when nothing was wrong."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--duration-s", type=float, default=600, help="how long faults come")
    parser.add_argument("--seed", type=int, default=1, help="of lines, faults and moments")
    parser.add_argument("--rate", type=int, default=200, help="lines a second")
    parser.add_argument(
        "--gap-s",
        type=float,
        nargs=2,
        default=(0.5, 4.0),
        metavar=("SHORTEST", "LONGEST"),
        help="time between two faults",
    )
    parser.add_argument("--without-airflow", action="store_true", help="only the command line")
    parser.add_argument("--json", type=Path, help="where the report is written, too")
    options = parser.parse_args()
    orders = Orders(
        seed=options.seed,
        duration_s=options.duration_s,
        gap_s=tuple(options.gap_s),
        rate=options.rate,
        with_airflow=not options.without_airflow,
        home=PROJECT / ".tally" / "chaos",
    )
    with interruptible():
        report = run_campaign(orders, lambda line: print(line, flush=True))
    if options.json is not None:
        options.json.write_text(report.to_json(), encoding="utf-8")
    print(_text(report))
    return 1 if report.problems else 0


def _text(report: Report) -> str:
    done = sum(report.faults.values())
    lines = [
        "",
        f"seed {report.seed}, {report.duration_s:.0f} s of faults on {report.machine}",
        f"{done:,} faults, {sum(report.commits.values()):,} commits",
        f"{report.lines:,} lines in {report.partitions} partitions",
        f"all counted {report.catching_up_s:.0f} s after the last fault",
        "",
        f"{'fault':<36}{'done':>6}{'missed':>8}   seconds to the next commit: median, longest",
    ]
    for name, count in sorted(report.faults.items()):
        wait = report.to_next_commit_s.get(name, {})
        lines.append(
            f"{name:<36}{count:>6}{report.missed.get(name, 0):>8}"
            f"{wait.get('median', 0):>12.1f}{wait.get('longest', 0):>10.1f}"
        )
    lines += ["", f"batches: {report.batches}", f"commands by exit code: {report.exits}"]
    if report.airflow_runs:
        lines.append(f"runs of Airflow: {report.airflow_runs}")
    lines.append(f"memory in MiB, mean of each quarter: {report.memory_mib}")
    lines.append(
        f"lost {report.lost}, duplicated {report.duplicated}, invented {report.invented}, in "
        f"{report.looks} looks nothing else"
        if not report.problems
        else ""
    )
    lines += [f"PROBLEM: {problem}" for problem in report.problems]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
