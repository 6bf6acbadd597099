"""``docs/failure-cases.md`` names existing tests, and all of its cases are there."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "failure-cases.md"
SECTIONS = ["Planning", "Reading", "Commit", "Orchestration", "Replay", "Proof machinery"]
HEADER = ["case", "what Tally does", "test"]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One case of the page."""

    section: str
    case: str
    answer: str
    tests: tuple[tuple[str, str], ...]
    """File and name of each."""


def sections(page: str) -> list[tuple[str, str]]:
    """Heading and text of each section, in order."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def tables(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The cells of each section's only table, its header among them."""
    for heading, text in sections(page):
        lines = [line for line in text.splitlines() if line.startswith("|")]
        yield heading, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rows(page: str) -> list[Row]:
    """Every case of the page."""
    return [
        Row(section=heading, case=case, answer=answer, tests=tuple(NAMED.findall(tests)))
        for heading, table in tables(page)
        for case, answer, tests in table[2:]
    ]


@cache
def names_in(path: str) -> frozenset[str]:
    """The tests that a file defines, those of a class with its name in front."""
    tree = ast.parse((CHECKOUT / path).read_text(encoding="utf-8"))
    found = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and is_test(node.name)
    }
    for group in tree.body:
        if isinstance(group, ast.ClassDef) and group.name.startswith("Test"):
            found |= {
                f"{group.name}::{node.name}"
                for node in group.body
                if isinstance(node, ast.FunctionDef) and is_test(node.name)
            }
    return frozenset(found)


def is_test(name: str) -> bool:
    """Whether pytest runs it."""
    return name.startswith("test_")


def unknown(page: str) -> list[str]:
    """Tests that are named and that no file has."""
    return [
        f"{path}::{name}"
        for row in rows(page)
        for path, name in row.tests
        if not (CHECKOUT / path).is_file() or name not in names_in(path)
    ]


@pytest.fixture(scope="module")
def page() -> str:
    """The page's text."""
    return PAGE.read_text(encoding="utf-8")


def test_every_section_is_there_with_one_table_of_cases(page: str) -> None:
    """The sections are in order, and none is empty."""
    found = dict(tables(page))
    assert list(found) == SECTIONS
    for table in found.values():
        assert table[0] == HEADER
        assert len(table) > 2
        assert {len(line) for line in table} == {len(HEADER)}


def test_every_case_says_what_happens_and_names_a_test(page: str) -> None:
    """Each case has an answer and at least one test; every test that is mentioned is a case's."""
    for row in rows(page):
        assert row.case
        assert row.answer.endswith("."), row.case
        assert row.tests, row.case
    mentioned = re.findall(r"\btest_\w+(?!\w*\.py)", re.sub(r"tests/[\w/]+\.py", "", page))
    named = [name.split("::")[-1] for row in rows(page) for _, name in row.tests]
    assert len([name for name in mentioned if name in named]) >= len(named)


def test_every_named_test_exists(page: str) -> None:
    """Each test is in the file that the row names."""
    assert unknown(page) == []


def test_no_case_is_there_twice(page: str) -> None:
    """No section has the same case twice."""
    times = Counter((row.section, row.case) for row in rows(page))
    assert [case for case, number in times.items() if number > 1] == []


def test_the_page_has_every_case(page: str) -> None:
    """The number of cases per section is fixed here, so that no row is lost unnoticed."""
    numbers = Counter(row.section for row in rows(page))
    assert numbers == {
        "Planning": 18,
        "Reading": 28,
        "Commit": 15,
        "Orchestration": 11,
        "Replay": 17,
        "Proof machinery": 9,
    }


def test_every_report_is_named_as_its_project_numbers_it(page: str) -> None:
    """All 28 reports are named, and only in the first column."""
    reports = re.findall(r"SPARK-\d+|#\d+|commit_unknown_result", page)
    in_cases = re.findall(
        r"SPARK-\d+|#\d+|commit_unknown_result", " ".join(row.case for row in rows(page))
    )
    assert len(in_cases) == len(reports)
    assert len(set(reports)) == 28


@pytest.mark.parametrize(
    "named",
    [
        "`tests/unit/test_failure_cases.py::test_that_nobody_has_written`",
        "`tests/unit/test_nowhere.py::test_every_named_test_exists`",
        "`tests/unit/test_failure_cases.py::TestNothing::test_every_named_test_exists`",
        "`tests/unit/test_failure_cases.py::unknown`",
    ],
)
def test_a_name_that_is_no_tests_is_found(named: str) -> None:
    """The check above can fail, also for a test of this file."""
    good = "`tests/unit/test_failure_cases.py::test_every_named_test_exists`"
    table = f"# x\n\n## Planning\n\n| a | b | c |\n|---|---|---|\n| one | It does. | {good} |\n"
    assert unknown(table) == []
    assert unknown(f"{table}| two | It does. | {named} |\n") == [named.strip("`")]
