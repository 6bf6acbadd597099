"""The tables of ``docs/fault-campaign.md``, from the reports of ``make chaos ARGS='--json FILE'``.

python -m tests.chaos.tables REPORT...

It exits with 1, and prints why, if a report contains a failure.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

COMMIT_PATH: Final = "commit-path"
PROCESSES: Final = "processes"
Report = dict[str, Any]


def main(paths: Sequence[str]) -> list[str]:
    """Print them; returns all problems and mismatches."""
    reports = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    for name, tables in ((COMMIT_PATH, of_statements), (PROCESSES, of_processes)):
        if of_name := [report[name] for report in reports if name in report]:
            print("\n".join(tables(of_name)), end="\n\n")
    parts = [part for report in reports for part in report.values()]
    return [found for part in parts for found in [*part["problems"], *part.get("mismatches", [])]]


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---|" + "---:|" * (len(columns) - 1)
    for row in rows:
        cells = [f"{cell:,.0f}" if isinstance(cell, int | float) else str(cell) for cell in row]
        yield f"| {' | '.join(cells)} |"
    yield ""


def of_statements(reports: Sequence[Report]) -> Iterator[str]:
    """The tables of the campaign against the commit path."""
    keys = ("seconds", "faults", "commits", "commits_under_fault")
    rows = [
        [str(r["seed"]), *(r[key] for key in keys), len(r["coverage"]), len(r["mismatches"])]
        for r in reports
    ]
    statements = set[str]().union(*(r["coverage"] for r in reports))
    totals = ["all", *(sum(row[n] for row in rows) for n in range(1, 7))]
    totals[5] = len(statements)
    columns = ("seed", *keys[:3], "after a fault", "statements", "mismatches")
    yield from _table(columns, [*rows, totals])
    kinds = sum((Counter(r["kinds"]) for r in reports), Counter[str]())
    rows = [[kind.lower().replace("_", " "), count] for kind, count in kinds.items()]
    yield from _table(("kind of fault", "came"), rows)
    points = [(at, came) for r in reports for at, came in r["coverage"].items()]
    met = {f"{point}: {kind}" for point, came in points for kind in came}
    never = {pair for r in reports for pair in r["never"]} - met
    yield f"{len(met):,} pairs of statement and kind came, {len(never):,} never did."
    for r in reports:
        yield f"Seed {r['seed']}, seconds from the first call that met a fault to the end of the"
        yield f"operation: {r['recovery_s']}"


def of_traces(report: Report) -> Iterator[str]:
    """What the traces of a campaign have, and how long they took."""
    rows = [["traces", report["traces"]], ["actions in them", report["actions"]]]
    rows += [["actions of the shortest", report["shortest"]]]
    rows += [["minutes that were complete", report["complete_minutes"]]]
    rows += [["of these changed afterwards, and amended", report["amended_minutes"]]]
    rows += [["different sequences of actions", report["different"]], *report["hard_cases"].items()]
    yield from _table(("in the traces", "came"), rows)
    yield f"{report['traces'] / report['seconds']:.1f} traces a second."


def of_processes(reports: Sequence[Report]) -> Iterator[str]:
    """The tables of the campaign against the processes."""
    keys = (
        "commits_under_fire",
        "lines",
        "partitions",
        "lost",
        "duplicated",
        "invented",
        "complete_minutes",
        "amended_minutes",
        "announced",
        "catching_up_s",
    )
    sums = ("faults", "commits")
    rows: list[list[Any]] = [
        [
            *(str(r["seed"]), r["machine"], r["duration_s"]),
            *(sum(r[key].values()) for key in sums),
            *(r[key] for key in keys),
        ]
        for r in reports
    ]
    minutes = ("complete", "amended", "announced")
    columns = ("seed", "machine", "seconds", *sums, "under fire", *keys[1:-4], *minutes, "catch-up")
    yield from _table(columns, rows)
    largest = "largest process, MiB in each quarter of the time"
    rows = [[role, str(r["seed"]), *mib] for r in reports for role, mib in r["memory_mib"].items()]
    yield from _table((largest, "seed", "1", "2", "3", "4"), rows)
    faults = sum((Counter(r["faults"]) for r in reports), Counter[str]())
    rows = []
    for kind, count in sorted(faults.items()):
        waits = [r["to_next_commit_s"][kind] for r in reports if kind in r["to_next_commit_s"]]
        medians = ", ".join(f"{wait['median']:.0f}" for wait in waits)
        rows.append([kind, count, medians, max((wait["longest"] for wait in waits), default=0)])
    yield from _table(("fault", "done", "seconds to the next commit, median", "longest"), rows)


if __name__ == "__main__":
    sys.exit("\n".join(main(sys.argv[1:])) or 0)
