"""Modules, classes and functions that docstrings, comments and pages name exist."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from tests.conftest import PROJECT
from tests.mutants.anchors import Anchor
from tests.unit.sources import PAGES, nodes, text

BASES = (PROJECT / "src", PROJECT / "local" / "src", PROJECT)
CODE = [
    path
    for folder in ("src", "local/src", "dags", "jobs", "plugins", "benchmarks", "tests")
    for path in sorted((PROJECT / folder).rglob("*.py"))
]
OTHER = [
    *{*PAGES, *PROJECT.glob("*.md")},
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
        return text(path)
    tokens = tokenize.generate_tokens(io.StringIO(text(path)).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    said = [node.value for node in nodes(path, ast.Expr)]
    return "\n".join(
        [*comments, *(str(node.value) for node in said if isinstance(node, ast.Constant))]
    )


def unknown(path: Path, pattern: re.Pattern[str], is_known: Callable[[str], bool]) -> set[str]:
    """The names in a file's prose that nothing has; prose is slow to take out of a file."""
    doubtful = {name for name in pattern.findall(text(path)) if not is_known(name)}
    return doubtful & set(pattern.findall(prose(path))) if doubtful else doubtful


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
    with suppress(LookupError):
        return bool(Anchor(module=file.stem, symbol=symbol).span(text(file)))
    return False


def is_known_in(file: Path, name: str) -> bool:
    """Whether a module defines or imports a name, or the name is fully qualified."""
    first = name.partition(".")[0]
    if NAME.fullmatch(name) or first in sys.stdlib_module_names:
        return True
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for kind in (ast.Import, ast.ImportFrom)
        for node in nodes(file, kind)
        for alias in node.names
    }
    return first in imported or defines(file, name)


def test_every_name_and_every_reference_leads_somewhere() -> None:
    """Each dotted name is defined in the code; a reference without a module is to its own."""
    found = {path: unknown(path, NAME, exists) for path in (*CODE, *OTHER)}
    for path in CODE:
        found[path] |= unknown(path, ROLE, partial(is_known_in, path))
    assert {str(path): names for path, names in found.items() if names} == {}


def test_a_name_that_is_not_there_is_seen(tmp_path: Path) -> None:
    """In a docstring or a comment: another module, another symbol, a method of another class."""
    assert exists("tally.ledger.commit.lock_attempt")
    assert exists("tally.kafka.client.Kafka.snapshot")
    wrong = {"tally.ledger.fence", "tally.kafka.client.Kafka.forget"}
    one, other = sorted(wrong)
    module = tmp_path / "module.py"
    module.write_text(
        f'"""See {one}, tally.model and :func:`forget`; :func:`known`."""\n'
        f"# {other} and :class:`Path`\nfrom pathlib import Path\n"
        'known = "tally.nothing :func:`nobody`"\n'
    )
    assert unknown(module, NAME, exists) == wrong
    assert unknown(module, ROLE, partial(is_known_in, module)) == {"forget"}
