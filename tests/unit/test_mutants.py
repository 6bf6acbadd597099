"""The table of mutants is true of the code as it stands; ``make mutants`` tries them."""

import ast
from pathlib import Path

import pytest
from tests.conftest import PROJECT
from tests.mutants.__main__ import make_mutant
from tests.mutants.anchors import Anchor, replace_in
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
    """What it takes out stands in its symbol, once, and what is left can be run."""
    code = make_mutant(mutant, tmp_path)
    for where, _, _ in mutant.changes:
        anchor = Anchor.parse(where)
        changed = anchor.file(code).read_text(encoding="utf-8")
        assert changed != anchor.file(PROJECT / "src").read_text(encoding="utf-8")
        ast.parse(changed)


def test_each_guard_is_there_once() -> None:
    """By its name, in the report."""
    guards = [mutant.guard for mutant in MUTANTS]
    assert len(guards) == len(set(guards)) > 20


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.guard)
def test_the_tests_that_notice_exist(mutant: Mutant) -> None:
    """Their files, and the functions in them."""
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
