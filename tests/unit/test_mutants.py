"""The table of mutants is true of the code as it stands; ``make mutants`` tries them."""

import ast
from pathlib import Path

import pytest
from tests.conftest import PROJECT
from tests.mutants.__main__ import make_mutant
from tests.mutants.table import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.guard)
def test_a_mutant_is_the_code_less_one_guard(mutant: Mutant, tmp_path: Path) -> None:
    """What it takes out stands in the code, once, and what is left can be run."""
    original = (PROJECT / "src" / "tally" / mutant.file).read_text(encoding="utf-8")
    for before, _ in mutant.changes:
        assert original.count(before) == 1
    changed = (make_mutant(mutant, tmp_path) / "tally" / mutant.file).read_text(encoding="utf-8")
    assert changed != original
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
