"""``docs/failure-cases.md`` names existing tests, and all of its cases are there."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.conftest import PROJECT
from tests.unit.sources import DOCS, defined_tests, text

PAGE = text(DOCS / "failure-cases.md")
SECTIONS = ["Planning", "Reading", "Commit", "Orchestration", "Replay", "Proof machinery"]
CASES = dict(zip(SECTIONS, (18, 28, 15, 11, 17, 9), strict=True))
"""How many there are, so that no row is lost unnoticed."""
HEADER = ["case", "what Tally does", "test"]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
REPORT = re.compile(r"SPARK-\d+|#\d+|commit_unknown_result")


class Row(NamedTuple):
    """One case of the page, with file and name of each test."""

    section: str
    case: str
    answer: str
    tests: list[tuple[str, str]]


def tables(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The cells of each section's only table, its header among them, in order."""
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)[1:]
    for heading, section in zip(parts[::2], parts[1::2], strict=True):
        lines = [line for line in section.splitlines() if line.startswith("|")]
        yield heading, [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rows(page: str) -> list[Row]:
    """Every case of the page."""
    return [
        Row(heading, case, answer, NAMED.findall(tests))
        for heading, table in tables(page)
        for case, answer, tests in table[2:]
    ]


def unknown(page: str) -> list[str]:
    """Tests that are named and that no file has."""
    return [
        f"{path}::{name}"
        for row in rows(page)
        for path, name in row.tests
        if not (PROJECT / path).is_file() or name not in defined_tests(PROJECT / path)
    ]


def test_every_section_is_there_with_one_table_of_cases() -> None:
    """The sections are in order, each has its number of cases, and none is there twice."""
    found = dict(tables(PAGE))
    assert list(found) == SECTIONS
    for table in found.values():
        assert table[0] == HEADER
        assert {len(line) for line in table} == {len(HEADER)}
    assert Counter(row.section for row in rows(PAGE)) == CASES
    times = Counter((row.section, row.case) for row in rows(PAGE))
    assert [case for case, number in times.items() if number > 1] == []


def test_every_case_says_what_happens_and_names_a_test() -> None:
    """Each case has an answer and at least one test; every test that is mentioned is a case's."""
    for row in rows(PAGE):
        assert row.case
        assert row.answer.endswith("."), row.case
        assert row.tests, row.case
    mentioned = re.findall(r"\btest_\w+(?!\w*\.py)", re.sub(r"tests/[\w/]+\.py", "", PAGE))
    named = [name.split("::")[-1] for row in rows(PAGE) for _, name in row.tests]
    assert len([name for name in mentioned if name in named]) >= len(named)


def test_every_report_is_named_as_its_project_numbers_it() -> None:
    """All 28 reports are named, and only in the first column."""
    reports = REPORT.findall(PAGE)
    assert len(REPORT.findall(" ".join(row.case for row in rows(PAGE)))) == len(reports)
    assert len(set(reports)) == 28


def test_every_named_test_exists() -> None:
    """Each test is in the file that the row names; the check can fail, also for this file."""
    assert unknown(PAGE) == []
    good = "`tests/unit/test_failure_cases.py::test_every_named_test_exists`"
    table = f"# x\n\n## Planning\n\n| a | b | c |\n|---|---|---|\n| one | It does. | {good} |\n"
    assert unknown(table) == []
    for wrong in (
        "tests/unit/test_failure_cases.py::test_that_nobody_has_written",
        "tests/unit/test_nowhere.py::test_every_named_test_exists",
        "tests/unit/test_failure_cases.py::TestNothing::test_every_named_test_exists",
        "tests/unit/test_failure_cases.py::unknown",
    ):
        assert unknown(f"{table}| two | It does. | `{wrong}` |\n") == [wrong]
