"""Modules, classes and functions that docstrings, comments and pages name exist."""

import ast
import io
import re
import tokenize
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.mutants.anchors import Anchor
from tests.servers import PROJECT
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


def unknown(path: Path) -> set[str]:
    """The names in a file's prose that nothing has; prose is slow to take out of a file."""
    doubtful = {name for name in NAME.findall(text(path)) if not exists(name)}
    return doubtful & set(NAME.findall(prose(path))) if doubtful else doubtful


@cache
def exists(name: str) -> bool:
    """Whether a dotted name is a package or a module of the checkout, or is defined in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        for module in (base.joinpath(*parts[:count]) for base in BASES):
            for file in (module.with_suffix(".py"), module / "__init__.py"):
                if file.is_file() and count < len(parts):
                    symbol = ".".join(parts[count:])
                    with suppress(LookupError):
                        return bool(Anchor(module=file.stem, symbol=symbol).span(text(file)))
                    return False
                if file.is_file():
                    return True
    return False


def test_every_name_leads_somewhere() -> None:
    """Each dotted name is defined in the code; a method is one of its class."""
    assert exists("tally.kafka.client.Kafka.snapshot")
    assert not exists("tally.kafka.client.Kafka.forget")
    assert {str(path): names for path in (*CODE, *OTHER) if (names := unknown(path))} == {}
