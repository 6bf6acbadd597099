"""The files of the checkout, each read and parsed once."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.servers import PROJECT

from tally import errors
from tally.errors import TallyError

DOCS = PROJECT / "docs"
README = PROJECT / "README.md"
PAGES = [README, *sorted(DOCS.glob("*.md"))]


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


def nodes(path: Path, kind: type[ast.AST]) -> Iterator[Any]:
    """Everything of one kind in a module."""
    return (node for node in _nodes(path) if isinstance(node, kind))


def name_of(node: ast.expr) -> str | None:
    """The name of an expression, without its module."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def error_tree(kind: type[TallyError] = TallyError, depth: int = 0) -> list[tuple[int, Any]]:
    """An error's class and all of Tally's below it, each with its depth, in their order."""
    below = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
    return [(depth, kind), *(found for child in below for found in error_tree(child, depth + 1))]


ERRORS: list[type[TallyError]] = [kind for depth, kind in error_tree() if depth]
