"""The tables of ``docs/fault-campaign.md``, from the reports of ``make chaos ARGS='--json FILE'``.

python -m tests.chaos.tables REPORT...

It exits with 1, and prints why, if a report contains a failure.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

COMMIT_PATH: Final = "commit-path"
PROCESSES: Final = "processes"
Report = dict[str, Any]


def main(paths: Sequence[str]) -> list[str]:
    """Print them; returns all problems and mismatches."""
    reports = [json.loads(Path(path).read_text(encoding="utf-8")) for path in paths]
    for name, tables in ((COMMIT_PATH, _of_statements), (PROCESSES, _of_processes)):
        if of_name := [report[name] for report in reports if name in report]:
            print("\n".join(tables(of_name)), end="\n\n")
    parts = [part for report in reports for part in report.values()]
    return [found for part in parts for found in [*part["problems"], *part.get("mismatches", [])]]


def _of_statements(reports: Sequence[Report]) -> Iterator[str]:
    yield "| seed | seconds | faults | commits | after a fault | statements | mismatches |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    kinds: Counter[str] = Counter()
    statements: set[str] = set()
    met: set[str] = set()
    never: set[str] = set()
    for r in reports:
        met |= {f"{point}: {kind}" for point, came in r["coverage"].items() for kind in came}
        never |= set(r["never"])
        kinds.update(r["kinds"])
        statements |= r["coverage"].keys()
        yield (
            f"| {r['seed']} | {r['seconds']:,.0f} | {r['faults']:,} | {r['commits']:,} "
            f"| {r['commits_under_fault']:,} | {len(r['coverage'])} | {len(r['mismatches'])} |"
        )
    added = ("seconds", "faults", "commits", "commits_under_fault")
    totals = " | ".join(f"{sum(r[key] for r in reports):,.0f}" for key in added)
    yield (f"| all | {totals} | {len(statements)} | {sum(len(r['mismatches']) for r in reports)} |")
    yield ""
    yield "| kind of fault | came |"
    yield "|---|---:|"
    for kind, count in kinds.items():
        yield f"| {kind.lower().replace('_', ' ')} | {count:,} |"
    yield ""
    yield f"{len(met):,} pairs of statement and kind came, {len(never - met):,} never did."
    for r in reports:
        yield f"Seed {r['seed']}, seconds from the first call that met a fault to the end of the"
        yield f"operation: {r['recovery_s']}"


def _of_processes(reports: Sequence[Report]) -> Iterator[str]:
    yield (
        "| seed | machine | seconds | faults | commits | under fire | lines | partitions "
        "| lost | duplicated | invented | caught up after |"
    )
    yield "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    faults: Counter[str] = Counter()
    waits: dict[str, list[dict[str, float]]] = defaultdict(list)
    for r in reports:
        faults.update(r["faults"])
        for kind, wait in r["to_next_commit_s"].items():
            waits[kind].append(wait)
        yield (
            f"| {r['seed']} | {r['machine']} | {r['duration_s']:,.0f} "
            f"| {sum(r['faults'].values()):,} | {sum(r['commits'].values()):,} "
            f"| {r['commits_under_fire']:,} | {r['lines']:,} "
            f"| {r['partitions']} | {r['lost']} | {r['duplicated']} | {r['invented']} "
            f"| {r['catching_up_s']:.0f} s |"
        )
    yield ""
    yield "| largest process, MiB in each quarter of the time | seed | 1 | 2 | 3 | 4 |"
    yield "|---|---:|---:|---:|---:|---:|"
    for r in reports:
        for role, mib in r["memory_mib"].items():
            yield f"| {role} | {r['seed']} | {' | '.join(f'{n:,.0f}' for n in mib)} |"
    yield ""
    yield "| fault | done | seconds to the next commit, median | longest |"
    yield "|---|---:|---:|---:|"
    for kind, count in sorted(faults.items()):
        medians = ", ".join(f"{wait['median']:.0f}" for wait in waits[kind])
        longest = max((wait["longest"] for wait in waits[kind]), default=0)
        yield f"| {kind} | {count:,} | {medians} | {longest:.0f} |"


if __name__ == "__main__":
    sys.exit("\n".join(main(sys.argv[1:])) or 0)
