"""Guards of the repository against what the design forbids."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import PROJECT
from tests.unit.sources import nodes, text

from tally import errors
from tally.errors import TallyError

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

FORBIDDEN = {
    "registry": REGISTRIES,
    "machine": MACHINE_PATH,
    "other project": OTHER_PROJECT,
    "unfinished": UNFINISHED,
}

HEAVY = frozenset({"airflow", "confluent_kafka", "pymysql", "pyspark", "yoyo"})


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


def imported_packages(path: Path) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    found = {a.name.partition(".")[0] for node in nodes(path, ast.Import) for a in node.names}
    return found | {
        node.module.partition(".")[0]
        for node in nodes(path, ast.ImportFrom)
        if node.module and not node.level
    }


def importers(package: str) -> set[str]:
    """The files of the product that import ``package``."""
    return {
        str(path.relative_to(PROJECT))
        for folder in ("src", "dags", "jobs", "plugins")
        for path in (PROJECT / folder).rglob("*.py")
        if package in imported_packages(path)
    }


def loaded_by(*modules: str) -> set[str]:
    """The top-level packages in memory after these modules alone were imported."""
    code = f"import {', '.join(modules)}, json, sys; print(json.dumps([*sys.modules]))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(answer.stdout)}


def all_errors(kind: type[TallyError] = TallyError) -> list[type[TallyError]]:
    """All of Tally's errors below ``kind``, the abstract root left out."""
    below = [error for child in kind.__subclasses__() for error in (child, *all_errors(child))]
    return [error for error in below if error.__module__ == errors.__name__]


def unhashed(lines: str) -> list[str]:
    """The requirements that are no exact version with at least one SHA-256."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", lines, flags=re.MULTILINE))
    pinned = re.compile(r"[\w.\[\]-]+==[^\s;]+(\s*;.*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    return [line for line in joined.splitlines() if line.strip() and not pinned.fullmatch(line)]


def test_one_package_alone_speaks_to_a_server() -> None:
    """A driver is imported in one place, where its errors are turned into ours."""
    for package, folder, modules in (
        ("confluent_kafka", "kafka", ["client", "errors", "record_times", "requests"]),
        ("pymysql", "mysql", ["connection", "errors", "pool", "transactions"]),
    ):
        assert importers(package) == {f"src/tally/{folder}/{module}.py" for module in modules}


def test_one_module_alone_asks_what_time_it_is() -> None:
    """So a test's clock is the clock of all of Tally."""
    asks = re.compile(r"\b(datetime|date)\.(now|utcnow|today)\(")
    found = {line.split(":")[0] for line in lines_with(asks, PROJECT / "src" / "tally")}
    assert found == {"clock.py"}


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    """The guard above sees imports inside functions, and is not confused by similar names."""
    module = tmp_path / "module.py"
    module.write_text("def work():\n    from pymysql.cursors import C\nimport pymysql_like.x\n")
    assert imported_packages(module) == {"pymysql", "pymysql_like"}


def test_the_core_is_light() -> None:
    """Formats, planning and the model load no Spark, Kafka, MySQL or Airflow, nor indirectly.

    The configuration is parsed in every process of Airflow.
    """
    core = ("tally.lines.format", "tally.model", "tally.planning.ingest")
    assert not loaded_by(*core) & HEAVY
    assert "pymysql" in loaded_by("tally.mysql.transactions"), "the guard sees a driver"


@pytest.mark.parametrize("pattern", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_is_forbidden_is_not_committed(pattern: re.Pattern[str]) -> None:
    """The address of a registry, a path of a machine, another project, unfinished work."""
    assert lines_with(pattern) == []


def test_the_guards_find_what_they_look_for(tmp_path: Path) -> None:
    """Each pattern is found in a text that has it, hidden folders apart."""
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    bad = (
        f"pip install 'tal{'ly[spark]'}'\npip install tal{'ly'}\npip install 'kafka-tally[spark]'\n"
    )
    (tmp_path / "hint.txt").write_text(bad)
    assert len(lines_with(OTHER_PROJECT, tmp_path)) == 2
    bad = f"cd /{'root'}/x\n# {'TO'}{'DO'}: later\nfine: src/work/x, https://example.com/root/x\n"
    (tmp_path / "sub" / "bad.txt").write_text(bad)
    (tmp_path / ".hidden" / "bad.txt").write_text(bad)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    assert lines_with(MACHINE_PATH, tmp_path) == [f"sub/bad.txt:1: cd /{'root'}/x"]
    assert len(lines_with(UNFINISHED, tmp_path)) == 1


def test_every_error_has_a_code_of_its_own() -> None:
    """The runbook has one entry for each code; none is inherited, none is used twice."""
    codes = Counter(vars(error).get("code", f"{error.__name__} has none") for error in all_errors())
    assert [code for code, times in codes.items() if times > 1] == []
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []


def test_every_error_says_how_the_command_ends() -> None:
    """Each has one of the documented exit codes."""
    documented = {errors.EXIT_USAGE, errors.EXIT_RETRYABLE, errors.EXIT_OPERATOR}
    assert {error.exit_code for error in all_errors()} == documented | {errors.EXIT_FENCED}


def test_every_requirement_is_pinned_with_its_hash() -> None:
    """Requirements are pinned with hashes and name no index."""
    lists = sorted(REQUIREMENTS.glob("*.txt"))
    assert len(lists) > 1
    for path in lists:
        assert "==" in text(path)
        assert unhashed(text(path)) == []
        assert not re.search(r"https?://|--(extra-)?index-url|--find-links", text(path))


@pytest.mark.parametrize(
    "line", ["click", "click>=8", "click==8.2", "click==8.2 --hash=md5:1", "-i x", "./local"]
)
def test_an_unpinned_requirement_is_found(line: str) -> None:
    """The guard above can fail."""
    good = f"rich==14.0 ; python_version < '4' \\\n    --hash=sha256:{'0' * 64}\n    # via tally\n"
    assert unhashed(good) == []
    assert unhashed(f"{good}{line}\n") == [line]


def test_what_the_local_stack_needs_is_locked() -> None:
    """Its own project is installed without its dependencies, which come from the one list."""
    project = tomllib.loads(text(PROJECT / "local" / "pyproject.toml"))
    locked = text(REQUIREMENTS / "locked.txt")
    needed = {re.split(r"[>=]", name)[0] for name in project["project"]["dependencies"]}
    assert needed - set(re.findall(r"^([\w-]+)==", locked, re.MULTILINE)) == {"kafka-tally"}
