"""Say what of a release is done and what is left: the last step of ``make dist``.

Run from the checkout, after the wheel was built: ``python requirements/release.py``.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
UPGRADE_TEST = Path("tests") / "migrations" / "test_upgrade.py"
BY_HAND = (
    "make test, and in a fresh clone with an empty cache make demo ONCE=1",
    "make chaos DURATION_S=1200, make mutants: both green at this commit",
    "make bench QUICK=1; make bench before figures are published",
    "requirements and images: make lock UPGRADE=1 within the last month, images by digest",
    "git tag, then LAST_RELEASE of tests/migrations/test_upgrade.py is that commit",
)


def main() -> int:
    """Print the checklist; always 0, as a wheel may be built for a trial."""
    version = _found(r'__version__ = "(.*)"', PROJECT / "src" / "tally" / "__init__.py")
    sys.stdout.write(f"\nto release {version}:\n")
    for is_done, what in _checks(version):
        sys.stdout.write(f"  {'done' if is_done else 'OPEN'}  {what}\n")
    for what in BY_HAND:
        sys.stdout.write(f"  run   {what}\n")
    return 0


def _checks(version: str) -> Iterator[tuple[bool, str]]:
    """Each step that a program can judge, and whether it is done."""
    changes = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield f"\n## [{version}] - " in changes, f"CHANGELOG.md has a section {version} with its date"
    yield _git("status", "--porcelain") == "", "nothing is uncommitted"
    last = _found(r'^LAST_RELEASE = "(.*)"', PROJECT / UPGRADE_TEST)
    names = (_git("ls-tree", "-r", "--name-only", last, "sql") or "").splitlines()
    new = [p.name for p in sorted((PROJECT / "sql").glob("*.sql")) if f"sql/{p.name}" not in names]
    refusing = [name.removesuffix(".sql") for name in new if not name.endswith(".expand.sql")]
    yield bool(names), f"the last release, {last[:8]}, is in the history"
    code = _git("show", f"{last}:src/tally/__init__.py") or ""
    yield f'"{version}"' not in code, f"{version} is not the version of the last release"
    for name in refusing:
        yield name in changes, f"CHANGELOG.md says that older versions stop after {name}"


def _found(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else ""


def _git(*arguments: str) -> str | None:
    """What git answers; None where it cannot, as outside of a checkout."""
    answer = subprocess.run(
        ["git", "-C", PROJECT, *arguments], capture_output=True, check=False, text=True
    )
    return None if answer.returncode else answer.stdout


if __name__ == "__main__":
    sys.exit(main())
