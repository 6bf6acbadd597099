"""Modules, classes and functions that docstrings, comments and pages name exist."""

import ast
import re
import sys
import tokenize
from functools import cache
from pathlib import Path

from tests.conftest import PROJECT
from tests.mutants.anchors import Anchor

BASES = (PROJECT / "src", PROJECT / "local" / "src", PROJECT)
CODE = [
    path
    for folder in ("src", "local/src", "dags", "jobs", "plugins", "benchmarks", "tests")
    for path in sorted((PROJECT / folder).rglob("*.py"))
]
PAGES = [
    *PROJECT.glob("*.md"),
    *PROJECT.glob("docs/*.md"),
    *(PROJECT / name for name in ("Makefile", "pyproject.toml", ".importlinter")),
]
# A file such as tally.toml is no module.
NAME = re.compile(
    r"(?<![\w./-])(?:tally|tally_local|tests|benchmarks)(?:\.(?!toml|sql)[A-Za-z_]\w*)+"
)
ROLE = re.compile(r":(?:func|class|meth|attr|data|mod):`~?([A-Za-z_][\w.]*)`")


def prose(path: Path) -> str:
    """The prose of a file: of Python its docstrings and comments, otherwise all of it."""
    if path.suffix != ".py":
        return path.read_text(encoding="utf-8")
    with path.open("rb") as stream:
        tokens = tokenize.tokenize(stream.readline)
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    said = [node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)]
    return "\n".join(
        [*comments, *(str(node.value) for node in said if isinstance(node, ast.Constant))]
    )


@cache
def tree(path: Path) -> ast.Module:
    """A module, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def exists(name: str) -> bool:
    """Whether a dotted name is a package or a module of the checkout, or is defined in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        for module in (base.joinpath(*parts[:count]) for base in BASES):
            for file in (module.with_suffix(".py"), module / "__init__.py"):
                if file.is_file():
                    return count == len(parts) or defines(file, ".".join(parts[count:]))
    return False


def defines(file: Path, symbol: str) -> bool:
    """Whether a module defines a function, a class, a constant, or something in a class."""
    try:
        Anchor(module=file.stem, symbol=symbol).span(file.read_text(encoding="utf-8"))
    except LookupError:
        return False
    return True


def is_known_in(file: Path, name: str) -> bool:
    """Whether a module defines or imports a name, or the name is fully qualified."""
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    first = name.partition(".")[0]
    return (
        NAME.fullmatch(name) is not None
        or first in imported | sys.stdlib_module_names
        or defines(file, name)
    )


def test_every_name_of_the_code_that_is_mentioned_exists() -> None:
    """Each dotted name is defined in the code."""
    named = {path: set(NAME.findall(prose(path))) for path in (*CODE, *PAGES)}
    assert {
        (str(path.relative_to(PROJECT)), name)
        for path, names in named.items()
        for name in names
        if not exists(name)
    } == set()
    assert sum(map(len, named.values())) > 100


def test_every_reference_leads_somewhere() -> None:
    """A reference without a module is to a name of the same module."""
    assert {
        (str(path.relative_to(PROJECT)), name)
        for path in CODE
        for name in ROLE.findall(prose(path))
        if not is_known_in(path, name)
    } == set()


def test_a_name_that_is_not_there_is_seen() -> None:
    """The checks above can fail: another module, another symbol, a method of another class."""
    assert exists("tally.ledger.commit.lock_attempt")
    assert exists("tally.kafka.client.Kafka.snapshot")
    assert not exists("tally.ledger.fence")
    assert not exists("tally.ledger.commit.unlock_attempt")
    assert not exists("tally.kafka.client.Kafka.forget")
    assert not is_known_in(Path(__file__), "forget")
