"""The structure of the code: layers, sizes, and docstrings of packages."""

import ast
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.conftest import PROJECT
from tests.unit.sources import name_of, nodes, text, tree

TALLY = PROJECT / "src" / "tally"
SOURCES = [TALLY, PROJECT / "local" / "src" / "tally_local"]
MODULES = [path for source in SOURCES for path in sorted(source.rglob("*.py"))]
MODULE_LINES_MAX = 350
FUNCTION_LINES_MAX = 60
FUNCTION_LINES_MEDIAN = 10


def body_lines(function: ast.FunctionDef) -> int:
    """Lines of a function's statements, its docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


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
    upside_down = text(PROJECT / ".importlinter").replace("    ledger\n", "")
    config = tmp_path / "layers"
    config.write_text(upside_down.replace("    model\n", "    model\n    ledger\n", 1))
    checked = lint_imports(config)
    assert checked.returncode == 1, checked.stderr
    assert "tally.ledger is not allowed to import tally." in checked.stdout, checked.stdout


def test_modules_and_functions_are_small() -> None:
    """A module has at most 350 lines, a function sixty; the median stays below ten lines."""
    assert [p for p in MODULES if len(text(p).splitlines()) > MODULE_LINES_MAX] == []
    lines = {
        f"{path.relative_to(PROJECT)}:{node.name}:{node.lineno}": body_lines(node)
        for path in MODULES
        for node in nodes(path, ast.FunctionDef)
    }
    assert statistics.median(lines.values()) < FUNCTION_LINES_MEDIAN
    assert {name for name, length in lines.items() if length > FUNCTION_LINES_MAX} == set()


def test_each_room_says_what_it_is_for() -> None:
    """A package's docstring says what belongs there."""
    rooms = [path for path in MODULES if path.name == "__init__.py"]
    assert len(rooms) > 10
    assert [room for room in rooms if not ast.get_docstring(tree(room))] == []


def test_an_edge_asks_use_cases_and_opens_no_transaction() -> None:
    """Use cases in `app` compose the queries of the ledger."""
    for edge in ("cli", "airflow"):
        found = {
            f"{path.relative_to(TALLY)}:{node.lineno}"
            for path in (TALLY / edge).rglob("*.py")
            for node in nodes(path, ast.Attribute)
            if node.attr == "transaction"
            or (node.attr == "run" and name_of(node.value) == "database")
        }
        assert found == set()


OPENED = {
    "AdminClient": {"kafka/requests.py"},
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


def test_a_client_is_opened_in_one_place() -> None:
    """All other code gets the client handed in; nothing opens a producer."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in TALLY.rglob("*.py"):
        for call in nodes(path, ast.Call):
            for name in {name_of(part) for part in (call.func, *call.args)} & {*OPENED, "Producer"}:
                found[name].add(path.relative_to(TALLY).as_posix())
    assert found == OPENED
