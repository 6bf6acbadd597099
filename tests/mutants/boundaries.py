"""Every boundary of what plans, counts, replays and proves, moved by one: ``<`` to ``<=`` and back.

Most faults of offset ranges are off by one, in Python and in SQL alike, so both are searched. What
cannot be noticed because both sides of the boundary mean the same stands in :data:`EQUIVALENT`.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STEPS: Final = ("counting", "replay", "audit", "losses", "maintenance")
ROOMS: Final = ("planning", "ledger", *STEPS)

MOVED: Final[Mapping[str, str]] = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_IN_SQL: Final = re.compile(r"(?<![-<>=!])(?:<=|>=|<|>)(?![<>=])")
_TEXTS: Final = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
"""Since Python 3.12 an f-string comes in pieces."""

_UNIT: Final = (
    "tests/unit/test_planning.py",
    "tests/unit/test_replay_planning.py",
    "tests/unit/test_replay_text.py",
    "tests/unit/cli/test_replay_selector.py",
    "tests/unit/cli/test_recount.py",
)
_MINUTE: Final = tuple(
    f"tests/minute/test_{name}.py"
    for name in (
        *("plan", "commit", "losses", "replay", "replay_races", "prune", "concurrency"),
        "malformed_ratio",
    )
)
_CLI: Final = tuple(f"tests/cli/test_{name}.py" for name in ("audit", "decisions", "read_commands"))
_FOUND: Final = "tests/properties/test_found.py"
_RANDOM: Final = "tests/properties/test_machine.py"

TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "planning": (*_UNIT, *_MINUTE),
    "ledger": (*_MINUTE, *_CLI, _FOUND, _RANDOM),
    **dict.fromkeys(STEPS, (*_UNIT, *_MINUTE, *_CLI, _FOUND, _RANDOM)),
}
"""Where to look for a test that notices, by room."""

_MOMENT: Final = "a moment of a clock: nothing is promised about the microsecond itself"

_OTHER_END: Final = "of a range that nothing has reprocessed, the other end tells as well"

EQUIVALENT: Final[Mapping[str, str]] = {
    "tally.ledger.folding:fold_partition 1": _MOMENT,
    "tally.ledger.folding:forget_history 1": _MOMENT,
    "tally.ledger.folding:forget_history 2": _MOMENT,
    "tally.ledger.folding:forget_history 4": _MOMENT,
    "tally.ledger.replays:standing_for 3": "itself it is abandoned, and left out as such",
    "tally.ledger.batches:settle_replay 2": _OTHER_END,
    "tally.ledger.batches:settle_replay 3": _OTHER_END,
    "tally.ledger.replays:seconds_for 1": _MOMENT,
    "tally.ledger.commit:supersede 1": "the topic's row is locked without need",
    "tally.ledger.positions:tiles_of 4": "one more segment is read, and left out by its end",
    "tally.counting.plan:_is_at_work 1": _MOMENT,
    "tally.counting.plan:_starts 1": _MOMENT,
}
"""Boundaries of which both sides mean the same, with the reason; by :attr:`Boundary.guard`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """One comparison, moved by one."""

    module: str
    """Dotted name of its module."""
    symbol: str
    """The top-level definition it stands in."""
    number: int
    """Which comparison of that definition it is, from 1."""
    line: str
    """The line it stands in."""
    start: int
    """Where it stands in the module's text, in characters."""
    before: str
    """The operator."""

    @property
    def guard(self) -> str:
        """``tally.planning.replay:overlap 1``."""
        return f"{self.module}:{self.symbol} {self.number}"

    @property
    def where(self) -> str:
        """Where it stands, and what it becomes."""
        return f"{self.before} becomes {MOVED[self.before]} in: {self.line}"

    @property
    def tests(self) -> tuple[str, ...]:
        """Where to look for a test that turns red."""
        return TESTS[self.module.split(".")[1]]

    def file(self, source: Path) -> Path:
        """The module's file below a folder of sources."""
        return source.joinpath(*self.module.split(".")).with_suffix(".py")

    def moved(self, text: str) -> str:
        """The module's text with the comparison moved.

        Raises:
            LookupError: The comparison is not there.
        """
        end = self.start + len(self.before)
        if text[self.start : end] != self.before:
            raise LookupError(f"{self.guard} is not at {self.start} of {self.module}")
        return text[: self.start] + MOVED[self.before] + text[end:]

    def apply(self, source: Path) -> None:
        """Move it in a copy of the code."""
        file = self.file(source)
        file.write_text(self.moved(file.read_text(encoding="utf-8")), encoding="utf-8")


def boundaries(source: Path) -> Iterator[Boundary]:
    """Every boundary of the rooms, those in :data:`EQUIVALENT` included.

    Args:
        source: The folder that has the package ``tally``.
    """
    for room in ROOMS:
        for file in sorted((source / "tally" / room).glob("*.py")):
            yield from _of_module(f"tally.{room}.{file.stem}", file.read_text(encoding="utf-8"))


def _of_module(module: str, text: str) -> Iterator[Boundary]:
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    seen: dict[str, int] = {}
    symbols = _symbols(text)
    for row, column, operator in _operators(text):
        symbol = next((name for name, first, last in symbols if first <= row <= last), "module")
        seen[symbol] = seen.get(symbol, 0) + 1
        yield Boundary(
            module=module,
            symbol=symbol,
            number=seen[symbol],
            line=lines[row - 1].strip(),
            start=starts[row - 1] + column,
            before=operator,
        )


def _operators(text: str) -> Iterator[tuple[int, int, str]]:
    """Row from 1, column from 0 and operator of each comparison, in order."""
    documentation = _documentation(text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.OP and token.string in MOVED:
            yield *token.start, token.string
        is_raw = token.string.lower().startswith(("r", "br"))
        if token.type in _TEXTS and not is_raw and token.start[0] not in documentation:
            for found in _IN_SQL.finditer(token.string):
                before = token.string[: found.start()]
                row = token.start[0] + before.count("\n")
                column = len(before.rpartition("\n")[2])
                yield row, column + (0 if "\n" in before else token.start[1]), found[0]


def _documentation(text: str) -> set[int]:
    """The rows in which a string begins that is a statement of its own."""
    return {
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def _symbols(text: str) -> list[tuple[str, int, int]]:
    """Top-level definitions and assignments with their first and last row."""
    found = []
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        found += [(name, node.lineno, node.end_lineno or node.lineno) for name in names]
    return found
