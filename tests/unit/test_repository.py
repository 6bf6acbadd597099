"""Guards of the repository against what the design forbids."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally import errors
from tally.errors import TallyError

CHECKOUT = Path(__file__).parents[2]
REQUIREMENTS = CHECKOUT / "requirements"

# Hidden folders and Python's caches are not source.
GENERATED = re.compile(r"(\.(?!ci$|github$).*|__pycache__|build|dist|.*\.egg-info)")

# In pieces, so that this file does not match its own patterns.
REGISTRIES = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("registry", "npmjs", "org"),
        ("proxy", "golang", "org"),
    )
)
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/(work|root|Users)/" + r"\w")
OTHER_PROJECT = re.compile(r"install\b.*(?<![\w-])tally(\[|['\"]?$)|(?<![\w-])tally\[[a-z]")
"""A hint that would install the project ``tally`` of PyPI, which is another one."""
UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME")) + r")\b")

HEAVY = frozenset({"airflow", "confluent_kafka", "pymysql", "pyspark", "yoyo"})


def committed_files(folder: Path = CHECKOUT) -> Iterator[Path]:
    """Files that are under version control, or would be with git add."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            if not GENERATED.fullmatch(path.name):
                yield from committed_files(path)
        elif path.name != ".git":  # a file in a worktree, which says where the repository is
            yield path


def lines_with(pattern: re.Pattern[str], folder: Path = CHECKOUT) -> list[str]:
    """``file:line: text`` of each line of text that the pattern is found in."""
    found = []
    for path in committed_files(folder):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(folder)}:{number}: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if pattern.search(line)
        ]
    return found


def imported_packages(source: str) -> set[str]:
    """The top-level packages that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def importers(package: str) -> set[str]:
    """The files of the product that import ``package``."""
    return {
        str(path.relative_to(CHECKOUT))
        for folder in ("src", "dags", "jobs", "plugins")
        for path in (CHECKOUT / folder).rglob("*.py")
        if package in imported_packages(path.read_text(encoding="utf-8"))
    }


def loaded_by(module: str) -> set[str]:
    """The top-level packages in memory after ``module`` alone was imported."""
    code = f"import {module}, json, sys; print(json.dumps([*sys.modules]))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(answer.stdout)}


def all_errors(kind: type[TallyError] = TallyError) -> list[type[TallyError]]:
    """All of Tally's errors below ``kind``, the abstract root left out."""
    below = [error for child in kind.__subclasses__() for error in (child, *all_errors(child))]
    return [error for error in below if error.__module__ == errors.__name__]


def unhashed(text: str) -> list[str]:
    """The requirements that are no exact version with at least one SHA-256."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    pinned = re.compile(r"[\w.\[\]-]+==[^\s;]+(\s*;.*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*")
    return [line for line in joined.splitlines() if line.strip() and not pinned.fullmatch(line)]


@pytest.mark.parametrize(
    ("package", "folder", "modules"),
    [
        ("confluent_kafka", "kafka", ["client", "errors", "record_times", "requests"]),
        ("pymysql", "mysql", ["connection", "errors", "pool", "transactions"]),
    ],
)
def test_one_package_alone_speaks_to_a_server(
    package: str, folder: str, modules: list[str]
) -> None:
    """A driver is imported in one place, where its errors are turned into ours."""
    assert importers(package) == {f"src/tally/{folder}/{module}.py" for module in modules}


def test_one_module_alone_asks_what_time_it_is() -> None:
    """So a test's clock is the clock of all of Tally."""
    asks = re.compile(r"\b(datetime|date)\.(now|utcnow|today)\(")
    found = {line.split(":")[0] for line in lines_with(asks, CHECKOUT / "src" / "tally")}
    assert found == {"clock.py"}


def test_imports_are_found_wherever_they_stand() -> None:
    """The guard above sees imports inside functions, and is not confused by similar names."""
    source = "def work():\n    from pymysql.cursors import Cursor\nimport pymysql_like.x\n"
    assert imported_packages(source) == {"pymysql", "pymysql_like"}


@pytest.mark.parametrize("module", ["tally.lines.format", "tally.model", "tally.planning.ingest"])
def test_the_core_is_light(module: str) -> None:
    """Planning and the model import no Spark, Kafka, MySQL or Airflow, also not indirectly."""
    assert not loaded_by(module) & HEAVY


def test_what_a_module_loads_is_seen() -> None:
    """The guard above can fail: a module that loads a driver is found."""
    assert "pymysql" in loaded_by("tally.mysql.transactions")


def test_no_registry_address_is_committed() -> None:
    """Packages come from wherever the user's own tools are set to find them."""
    assert lines_with(re.compile("|".join(map(re.escape, REGISTRIES)))) == []


def test_no_path_of_a_machine_is_committed() -> None:
    """The checkout may be in any folder."""
    assert lines_with(MACHINE_PATH) == []


def test_no_hint_installs_another_project() -> None:
    """The distribution is ``kafka-tally``; ``tally`` is the command, and another one's name."""
    assert [line for line in lines_with(OTHER_PROJECT) if "OTHER_PROJECT" not in line] == []


def test_nothing_is_left_for_later() -> None:
    """Unfinished work is an issue, not a comment."""
    assert lines_with(UNFINISHED) == []


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


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    """The picture at the top of the module has every error, under its parent."""
    drawn: list[tuple[str, str]] = []
    stack = ["TallyError"]
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"    ([│├└─ ]+)(\w+Error)", line):
            depth = len(found[1]) // 4
            del stack[depth:]
            drawn.append((found[2], stack[-1]))
            stack.append(found[2])
    assert sorted(drawn) == sorted(
        (error.__name__, error.__mro__[1].__name__) for error in all_errors()
    )


@pytest.mark.parametrize("path", sorted(REQUIREMENTS.glob("*.txt")), ids=lambda path: path.name)
def test_every_requirement_is_pinned_with_its_hash(path: Path) -> None:
    """Requirements are pinned with hashes and name no index."""
    text = path.read_text(encoding="utf-8")
    assert "==" in text
    assert unhashed(text) == []
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links", text)


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
    project = tomllib.loads((CHECKOUT / "local" / "pyproject.toml").read_text(encoding="utf-8"))
    locked = (REQUIREMENTS / "locked.txt").read_text(encoding="utf-8")
    needed = {re.split(r"[>=]", name)[0] for name in project["project"]["dependencies"]}
    assert needed - set(re.findall(r"^([\w-]+)==", locked, re.MULTILINE)) == {"kafka-tally"}
