"""The source of a symbol, by its name, so that a mutant survives changes elsewhere in the file.

``tally.planning.ingest:_find_loss`` is a function, ``tally.ledger.commit:STATEMENT`` an assigned
name, ``tally.kafka.client:Kafka.snapshot`` a method.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """One symbol in one module."""

    module: str
    """Dotted name."""
    symbol: str
    """Qualified name in it."""

    @classmethod
    def parse(cls, text: str) -> "Anchor":
        """Parse ``module:symbol``."""
        module, _, symbol = text.partition(":")
        return cls(module=module, symbol=symbol)

    def file(self, source: Path) -> Path:
        """The module's file below a folder of sources."""
        return source.joinpath(*self.module.split(".")).with_suffix(".py")

    def span(self, text: str) -> tuple[int, int]:
        """Start and end of the symbol's source in its module's text.

        Raises:
            LookupError: The module has no symbol of that name, or several.
        """
        found = list(_named(_parsed(text).body, self.symbol.split(".")))
        if len(found) != 1:
            raise LookupError(f"{len(found)} symbols {self.symbol} in {self.module}")
        lines = text.splitlines(keepends=True)
        first = min([found[0].lineno, *(d.lineno for d in getattr(found[0], "decorator_list", []))])
        start = sum(map(len, lines[: first - 1]))
        return start, start + sum(map(len, lines[first - 1 : found[0].end_lineno]))


def replace_in(text: str, anchor: Anchor, before: str, after: str) -> str:
    """The module's text with one piece of a symbol's source replaced.

    Raises:
        LookupError: The symbol or the piece is not found exactly once.
    """
    start, end = anchor.span(text)
    source = text[start:end]
    if source.count(before) != 1:
        raise LookupError(f"{anchor.symbol} has {source.count(before)} times: {before}")
    return text[:start] + source.replace(before, after) + text[end:]


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _named(body: Sequence[ast.stmt], path: Sequence[str]) -> Iterator[ast.stmt]:
    for node in body:
        if path[0] in _names(node):
            if len(path) == 1:
                yield node
            elif isinstance(node, ast.ClassDef):
                yield from _named(node.body, path[1:])


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]
