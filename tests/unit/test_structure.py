"""The structure of the code: layers, sizes, and docstrings of packages."""

import ast
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import PROJECT

SOURCES = [PROJECT / "src" / "tally", PROJECT / "local" / "src" / "tally_local"]
MODULE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN = 10


def modules() -> Iterator[Path]:
    """Every module of the product and of the local stack."""
    for source in SOURCES:
        yield from sorted(source.rglob("*.py"))


def body_lines(function: ast.FunctionDef) -> int:
    """Lines of a function's statements, its docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def functions() -> dict[str, int]:
    """Every function with the lines of its body."""
    return {
        f"{path.relative_to(PROJECT)}:{node.name}:{node.lineno}": body_lines(node)
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }


def lint_imports(config: Path) -> subprocess.CompletedProcess[str]:
    """Check the imports in a process of its own: import-linter disables all loggers that exist."""
    lint = Path(sys.executable).with_name("lint-imports")
    command = [lint, "--no-cache", "--no-logo", "--config", config]
    return subprocess.run(command, cwd=PROJECT, check=False, capture_output=True, text=True)


def test_the_layers_hold() -> None:
    """No cycle, no import upwards, each client in one package; `.importlinter` has the reasons."""
    checked = lint_imports(PROJECT / ".importlinter")
    assert checked.returncode == 0, checked.stdout


def test_a_layer_that_is_broken_is_seen(tmp_path: Path) -> None:
    """The check above can fail: the layers in reverse order are broken."""
    text = (PROJECT / ".importlinter").read_text(encoding="utf-8")
    upside_down = text.replace("    ledger\n", "").replace(
        "    model\n", "    model\n    ledger\n", 1
    )
    config = tmp_path / "layers"
    config.write_text(upside_down, encoding="utf-8")
    checked = lint_imports(config)
    assert checked.returncode == 1, checked.stderr
    assert "tally.ledger is not allowed to import tally." in checked.stdout, checked.stdout


def test_no_module_is_too_large_to_read() -> None:
    """A module has at most 350 lines."""
    large = {
        str(path.relative_to(PROJECT))
        for path in modules()
        if len(path.read_text(encoding="utf-8").splitlines()) > MODULE_LINES_MAX
    }
    assert large == set()


def test_functions_are_small() -> None:
    """The median stays below ten lines, and none is longer than sixty."""
    lines = functions()
    assert statistics.median(lines.values()) < FUNCTION_LINES_MEDIAN
    assert {name for name, length in lines.items() if length > FUNCTION_LINES_MAX} == set()


def test_each_room_says_what_it_is_for() -> None:
    """A package's docstring says what belongs there."""
    for source in SOURCES:
        for room in sorted(source.rglob("__init__.py")):
            assert ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))), room


@pytest.mark.parametrize("edge", ["cli", "airflow"])
def test_an_edge_asks_use_cases_and_opens_no_transaction(edge: str) -> None:
    """Use cases in `app` compose the queries of the ledger."""
    found = {
        f"{path.relative_to(SOURCES[0])}:{node.lineno}"
        for path in (SOURCES[0] / edge).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and (node.attr == "transaction" or (node.attr == "run" and names(node.value) == "database"))
    }
    assert found == set()


OPENED = {
    "AdminClient": {"kafka/requests.py"},
    "Producer": set(),
    "Kafka": {"app/context.py"},
    "Database": {"app/context.py"},
    "connect_session": {"spark/session.py"},
    # The doctor tries the engine itself; a command shares one session among its batches. The job of
    # which the classes are archived has no batch.
    "spark_session": {
        "app/context.py",
        "app/doctor/engine.py",
        "job.py",
        "spark/archived_job.py",
    },
}


@pytest.mark.parametrize("name", sorted(OPENED))
def test_a_client_is_opened_in_one_place(name: str) -> None:
    """All other code gets the client handed in."""
    source = SOURCES[0]
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Call) and names(node.func) == name)
        or (isinstance(node, ast.Call) and any(names(a) == name for a in node.args))
    }
    assert found == OPENED[name]


def names(node: ast.expr) -> str | None:
    """The name of an expression, without its module."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
