"""Guards of the repository and of the structure of its code: what the design forbids."""

import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.servers import PROJECT
from tests.unit.sources import name_of, nodes, text, tree

REQUIREMENTS = PROJECT / "requirements"

# Hidden folders and Python's caches are not source.
GENERATED = re.compile(r"(\.(?!ci$|github$).*|__pycache__|build|dist|.*\.egg-info)")

# Not as they are, so that this file does not match its own patterns.
REGISTRIES = re.compile(
    "pypi-org|files-pythonhosted-org|repo1-maven-org|repo-maven-apache-org|deb-debian-org|"
    "archive-ubuntu-com|registry-npmjs-org|proxy-golang-org".replace("-", r"\.")
)
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/(work|root|Users)/" + r"\w")
OTHER_PROJECT = re.compile(r"install\b.*(?<![\w-])tally(\[|['\"]?$)|(?<![\w-])tally\[[a-z]")
"""A hint that would install the project ``tally`` of PyPI, which is another one."""
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME")) + r")\b")

FORBIDDEN = [REGISTRIES, MACHINE_PATH, OTHER_PROJECT, UNFINISHED]

TALLY = PROJECT / "src" / "tally"
SOURCES = [TALLY, PROJECT / "local" / "src" / "tally_local"]
MODULES = [path for source in SOURCES for path in sorted(source.rglob("*.py"))]
MODULE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN = 10


def committed_files(folder: Path = PROJECT) -> Iterator[Path]:
    """Files that are under version control, or would be with git add."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not GENERATED.fullmatch(path.name):
                yield from committed_files(path)
        elif path.name != ".git":  # a file in a worktree, which says where the repository is
            yield path


def lines_with(pattern: re.Pattern[str], folder: Path = PROJECT) -> list[str]:
    """``file:line: text`` of each line of text that the pattern is found in."""
    found = []
    for path in committed_files(folder):
        with suppress(UnicodeDecodeError):
            found += [
                f"{path.relative_to(folder)}:{number}: {line.strip()}"
                for number, line in enumerate(text(path).splitlines(), start=1)
                if pattern.search(line)
            ]
    return found


def unhashed(lines: str) -> list[str]:
    """The requirements that are no exact version with at least one SHA-256."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", lines, flags=re.MULTILINE))
    pinned = re.compile(r"[\w.\[\]-]+==[^\s;]+(\s*;.*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    return [line for line in joined.splitlines() if line.strip() and not pinned.fullmatch(line)]


def test_what_is_forbidden_is_not_committed(tmp_path: Path) -> None:
    """No registry, path of a machine, other project, unfinished work; each would be found."""
    assert [line for pattern in FORBIDDEN for line in lines_with(pattern)] == []
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    bad = f"pip install 'tal{'ly[x]'}'\npip install tal{'ly'}\npip install 'kafka-tally[x]'\n"
    (tmp_path / "hint.txt").write_text(bad)
    assert len(lines_with(OTHER_PROJECT, tmp_path)) == 2
    bad = f"cd /{'root'}/x\n# {'TO'}{'DO'}: later\nfine: src/work/x, https://example.com/root/x\n"
    (tmp_path / "sub" / "bad.txt").write_text(bad)
    (tmp_path / ".hidden" / "bad.txt").write_text(bad)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    assert lines_with(MACHINE_PATH, tmp_path) == [f"sub/bad.txt:1: cd /{'root'}/x"]
    assert len(lines_with(UNFINISHED, tmp_path)) == 1
    assert REGISTRIES.search("https://" + ".".join(("repo1", "maven", "org")))
    # One module asks what time it is: so a test's clock is the clock of all of Tally.
    asks = re.compile(r"\b(datetime|date)\.(now|utcnow|today)\(")
    found = {line.split(":")[0] for line in lines_with(asks, PROJECT / "src" / "tally")}
    assert found == {"clock.py"}


def test_every_requirement_is_pinned_with_its_hash() -> None:
    """Requirements are pinned with hashes and name no index."""
    lists = sorted(REQUIREMENTS.glob("*.txt"))
    assert len(lists) > 1
    for path in lists:
        assert "==" in text(path)
        assert unhashed(text(path)) == []
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links", text(path))
    good = f"rich==14.0 ; python_version < '4' \\\n    --hash=sha256:{'0' * 64}\n    # via tally\n"
    assert unhashed(good) == []
    for line in ("click", "click>=8", "click==8.2", "click==8.2 --hash=md5:1", "-i x", "./local"):
        assert unhashed(f"{good}{line}\n") == [line]
    # The local stack's project is installed without its dependencies, which are in the one list.
    project = tomllib.loads(text(PROJECT / "local" / "pyproject.toml"))
    locked = text(REQUIREMENTS / "locked.txt")
    needed = {re.split(r"[>=]", name)[0] for name in project["project"]["dependencies"]}
    assert needed - set(re.findall(r"^([\w-]+)==", locked, re.MULTILINE)) == {"kafka-tally"}


def body_lines(function: ast.FunctionDef) -> int:
    """Lines of a function's statements, its docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_the_layers_hold() -> None:
    """No cycle, no import upwards, each client in one package; `.importlinter` has the reasons."""
    # In a process of its own: import-linter disables all loggers that exist.
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"]
    checked = subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_modules_and_functions_are_small() -> None:
    """A module has at most 350 lines and, if a package, its purpose; a function sixty lines."""
    assert [p for p in MODULES if len(text(p).splitlines()) > MODULE_LINES_MAX] == []
    packages = [path for path in MODULES if path.name == "__init__.py"]
    assert len(packages) > 10
    assert [package for package in packages if not ast.get_docstring(tree(package))] == []
    lines = {
        f"{path.relative_to(PROJECT)}:{node.name}:{node.lineno}": body_lines(node)
        for path in MODULES
        for node in nodes(path, ast.FunctionDef)
    }
    assert statistics.median(lines.values()) < FUNCTION_LINES_MEDIAN
    assert {name for name, length in lines.items() if length > FUNCTION_LINES_MAX} == set()


OPENED = {
    "AdminClient": {"kafka/requests.py"},
    "Kafka": {"context.py"},
    "Database": {"context.py"},
    "connect_session": {"spark/session.py"},
    # The doctor tries the engine itself; a command shares one session among its batches. The job of
    # which the classes are archived has no batch.
    "spark_session": {"context.py", "status/doctor/machine.py", "job.py", "spark/class_archive.py"},
}


def test_an_edge_opens_no_transaction_and_a_client_is_opened_in_one_place() -> None:
    """Use cases in `app` compose the queries of the ledger."""
    edges = [*(TALLY / "cli").rglob("*.py"), *(TALLY / "airflow").rglob("*.py")]
    asked = [(path, node) for path in edges for node in nodes(path, ast.Attribute)]
    assert len(asked) > 1_000
    found = [
        f"{path.relative_to(TALLY)}:{node.lineno}"
        for path, node in asked
        if node.attr == "transaction" or (node.attr, name_of(node.value)) == ("run", "database")
    ]
    assert found == []
    # A client is opened in one place, and handed in elsewhere; nothing opens a producer.
    opened: dict[str, set[str]] = defaultdict(set)
    for path in TALLY.rglob("*.py"):
        for call in nodes(path, ast.Call):
            for name in {name_of(part) for part in (call.func, *call.args)} & {*OPENED, "Producer"}:
                opened[name].add(path.relative_to(TALLY).as_posix())
    assert opened == OPENED
