"""``make mutants``: remove each guard, and run the tests that must fail.

The tests import a changed copy of the code; the checkout is not touched. A mutant that no test
notices is a bug of the suite. With ``--boundaries`` the mutants are all comparisons of planning,
ledger and pipeline, each moved by one.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tally_local.stack.interruption import interruptible
from tests.mutants.boundaries import EQUIVALENT, Boundary, boundaries
from tests.mutants.table import MUTANTS, Mutant
from tests.servers import PROJECT, home_of_session, shared_stack

PYTEST_FAILED = 1

AnyMutant = Mutant | Boundary


def main() -> int:
    """Try the mutants; returns 0 when each was noticed."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those whose guard has this text")
    parser.add_argument("--table", type=Path, help="where a table of them goes, as Markdown")
    parser.add_argument("--boundaries", action="store_true", help="move each comparison by one")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    options = parser.parse_args()
    known: Sequence[AnyMutant] = MUTANTS
    if options.boundaries:
        known = [b for b in boundaries(PROJECT / "src") if b.guard not in EQUIVALENT]
    chosen = [mutant for mutant in known if options.only in mutant.guard]
    with interruptible(), home_of_session():
        shared_stack()
        _check_green(chosen)
        with ThreadPoolExecutor(options.workers) as pool:
            red = dict(zip(chosen, pool.map(_red_tests, chosen), strict=True))
    if options.table is not None:
        options.table.write_text(_table(red), encoding="utf-8")
    survivors = [mutant for mutant, tests in red.items() if not tests]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were noticed")
    for mutant in survivors:
        print(f"NOT NOTICED: {mutant.guard} ({mutant.where})")
    return 1 if survivors or not chosen else 0


def _check_green(chosen: Sequence[AnyMutant]) -> None:
    """Check that all tests pass with every guard in place."""
    tests = dict.fromkeys(test for mutant in chosen for test in mutant.tests)
    print(f"first the {len(tests)} tests as they are", flush=True)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": _path(PROJECT / "src")},
        check=False,
    )
    if ended.returncode:
        sys.exit("they must be green before a guard is taken out")


def _table(red: dict[AnyMutant, list[str]]) -> str:
    rows = [
        f"| {m.guard} | `{m.where}` | {', '.join(f'`{test}`' for test in _names(tests))} |"
        for m, tests in red.items()
    ]
    return "\n".join(["| guard | taken out of | tests that turn red |", "|---|---|---|", *rows, ""])


def _names(tests: Sequence[str]) -> list[str]:
    """Names of the tests, without parameters, each once."""
    return list(dict.fromkeys(test.partition("[")[0] for test in tests))


def _red_tests(mutant: AnyMutant) -> list[str]:
    """The tests that fail; empty when all pass, or when pytest could not collect or run them."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tally-mutant-") as name:
        code = make_mutant(mutant, Path(name))
        report = Path(name) / "report.xml"
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
                f"--junit-xml={report}",
                *(["--exitfirst"] if isinstance(mutant, Boundary) else []),
                *mutant.tests,
            ],
            cwd=PROJECT,
            env={**os.environ, "PYTHONPATH": _path(code)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        red = _failed(report) if ended.returncode == PYTEST_FAILED else []
    verdict = ", ".join(red) or f"NOT NOTICED (pytest ended with {ended.returncode})"
    seconds = time.monotonic() - begun
    print(f"{mutant.guard} [{mutant.where}, {seconds:.0f} s]: {verdict}", flush=True)
    if not red:
        print(ended.stdout[-2000:], flush=True)
    return red


def _path(code: Path) -> str:
    """PYTHONPATH: the code under test, and the checkout's local stack."""
    return os.pathsep.join([str(code), str(PROJECT / "local" / "src")])


def make_mutant(mutant: AnyMutant, folder: Path) -> Path:
    """Copy the code and remove the guard; returns the folder with the package."""
    shutil.copytree(PROJECT / "src", folder / "src")
    shutil.copytree(PROJECT / "sql", folder / "sql")
    mutant.apply(folder / "src")
    return folder / "src"


def _failed(report: Path) -> list[str]:
    """Names of the tests that failed; errors of set-up are not included."""
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - pytest has just written it
    return [str(case.get("name")) for case in cases if case.find("failure") is not None]


if __name__ == "__main__":
    sys.exit(main())
