"""The table of mutants fits the current code; ``make mutants`` runs them."""

import ast
from pathlib import Path

import pytest
from tests.mutants.anchors import Anchor, replace_in
from tests.mutants.boundaries import EQUIVALENT, MOVED, TESTS, boundaries
from tests.mutants.table import MUTANTS, Mutant
from tests.servers import PROJECT
from tests.unit.sources import text

BOUNDARIES = list(boundaries(PROJECT / "src"))


def misfit(mutant: Mutant) -> str | None:
    """What is wrong with a mutant: its text is not there once, or the rest does not compile."""
    changed: dict[Path, str] = {}
    try:
        for where, before, after in mutant.changes:
            anchor = Anchor.parse(where)
            file = anchor.file(PROJECT / "src")
            changed[file] = replace_in(changed.get(file, text(file)), anchor, before, after)
        for code in changed.values():
            ast.parse(code)
    except (LookupError, OSError, SyntaxError) as error:
        return repr(error)
    same = [file.name for file, code in changed.items() if code == text(file)]
    return f"nothing is changed in {same}" if same else None


def test_a_mutant_is_the_code_less_one_guard() -> None:
    """The removed text is in its symbol exactly once, and the rest compiles; the check can fail."""
    assert {m.guard: why for m in MUTANTS if (why := misfit(m))} == {}
    where, there = "tally.ledger.commit:lock_attempt", "def lock_attempt("
    for wrong in (
        {"where": "tally.ledger.commit:unlock_attempt"},
        {"before": "a text that is not there"},
        {"after": there},
        {"after": "def ("},
        {"also": (("tally.ledger.nowhere:commit", "a", "b"),)},
    ):
        told = {"where": where, "before": there, "after": "def lock_any(", **wrong}
        assert misfit(Mutant(guard="one", tests=(), **told)) is not None  # type: ignore[arg-type]
    # Each guard is there once; the files and the test functions that notice exist.
    guards = [mutant.guard for mutant in MUTANTS]
    assert len(guards) == len(set(guards)) > 20
    for target in {target for mutant in MUTANTS for target in mutant.tests}:
        path, _, name = target.partition("::")
        assert (PROJECT / path).exists(), target
        assert not name or f"def {name}(" in text(PROJECT / path), target


def test_a_boundary_is_moved_by_one_character() -> None:
    """In Python and in SQL: the operator alone changes, and what comes out can be run."""
    guards = [boundary.guard for boundary in BOUNDARIES]
    assert len(guards) == len(set(guards)) > 50
    assert EQUIVALENT.keys() | {"tally.ledger.positions:tiles_of 6"} <= set(guards)
    assert [
        path for paths in TESTS.values() for path in paths if not (PROJECT / path).exists()
    ] == []
    for boundary in BOUNDARIES:
        before = text(boundary.file(PROJECT / "src"))
        after = boundary.moved(before)
        ast.parse(after)
        grown = len(MOVED[boundary.before]) - len(boundary.before)
        assert len(after) - len(before) == grown, boundary.guard
        pairs = zip(before.splitlines(), after.splitlines(), strict=True)
        assert [a.strip() for a, b in pairs if a != b] == [boundary.line], boundary.guard
        with pytest.raises(LookupError):
            boundary.moved(f"#{before}")
