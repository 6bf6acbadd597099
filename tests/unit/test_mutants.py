"""The table of mutants fits the current code; ``make mutants`` runs them."""

import ast
from pathlib import Path

import pytest
from tests.conftest import PROJECT
from tests.mutants.__main__ import make_mutant
from tests.mutants.anchors import Anchor, replace_in
from tests.mutants.boundaries import EQUIVALENT, MOVED, TESTS, Boundary, boundaries
from tests.mutants.table import MUTANTS, Mutant

SOURCE = """\
LIMIT: int = 3

class Store:
    def read(self):
        return LIMIT

@cached
def read():
    return LIMIT
"""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.guard)
def test_a_mutant_is_the_code_less_one_guard(mutant: Mutant, tmp_path: Path) -> None:
    """The removed text is in its symbol exactly once, and the rest compiles."""
    code = make_mutant(mutant, tmp_path)
    for where, _, _ in mutant.changes:
        anchor = Anchor.parse(where)
        changed = anchor.file(code).read_text(encoding="utf-8")
        assert changed != anchor.file(PROJECT / "src").read_text(encoding="utf-8")
        ast.parse(changed)


def test_each_guard_is_there_once() -> None:
    """Guards have unique names in the report."""
    guards = [mutant.guard for mutant in MUTANTS]
    assert len(guards) == len(set(guards)) > 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.guard)
def test_the_tests_that_notice_exist(mutant: Mutant) -> None:
    """The files and the test functions exist."""
    for target in mutant.tests:
        path, _, name = target.partition("::")
        assert (PROJECT / path).exists()
        assert not name or f"def {name}(" in (PROJECT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("symbol", "line"), [("read", 9), ("Store.read", 5), ("LIMIT", 1)], ids=str
)
def test_a_change_stays_in_its_symbol(symbol: str, line: int) -> None:
    """The same text elsewhere in the file is left alone."""
    before, after = ("3", "4") if symbol == "LIMIT" else ("LIMIT", "None")
    anchor = Anchor(module="store", symbol=symbol)
    changed = replace_in(SOURCE, anchor, before, after).splitlines()
    assert [
        n for n, (a, b) in enumerate(zip(SOURCE.splitlines(), changed, strict=True), 1) if a != b
    ] == [line]


@pytest.mark.parametrize(("symbol", "before"), [("write", "LIMIT"), ("read", "return 3")])
def test_a_guard_that_is_not_there_is_an_error(symbol: str, before: str) -> None:
    """A mutant that changes nothing would prove nothing."""
    with pytest.raises(LookupError):
        replace_in(SOURCE, Anchor(module="store", symbol=symbol), before, "")


BOUNDARIES = list(boundaries(PROJECT / "src"))


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=lambda b: b.guard)
def test_a_boundary_is_moved_by_one_character(boundary: Boundary, tmp_path: Path) -> None:
    """The operator alone changes, and what comes out can be run."""
    parts = boundary.module.split(".")
    name = Path(*parts).with_suffix(".py")
    before = (PROJECT / "src" / name).read_text(encoding="utf-8")
    copy = tmp_path / name
    copy.parent.mkdir(parents=True)
    copy.write_text(before, encoding="utf-8")
    boundary.apply(tmp_path)
    after = copy.read_text(encoding="utf-8")
    ast.parse(after)
    assert len(after) - len(before) == len(MOVED[boundary.before]) - len(boundary.before)
    moved = [
        n
        for n, (a, b) in enumerate(zip(before.splitlines(), after.splitlines(), strict=True))
        if a != b
    ]
    assert [before.splitlines()[n].strip() for n in moved] == [boundary.line]


def test_boundaries_are_found_in_python_and_in_sql() -> None:
    """Each once, none in documentation; every exception is one of them."""
    guards = [boundary.guard for boundary in BOUNDARIES]
    assert len(guards) == len(set(guards)) > 50
    assert "tally.planning.replay:overlap 2" in guards
    assert "tally.ledger.tiles:tiles_of 6" in guards
    assert EQUIVALENT.keys() <= set(guards)


def test_the_tests_of_boundaries_exist() -> None:
    """For each room."""
    for room, paths in TESTS.items():
        assert (PROJECT / "src" / "tally" / room).is_dir()
        assert all((PROJECT / path).exists() for path in paths)
