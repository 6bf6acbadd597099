"""``docs/failure-cases.md`` names existing tests, and all of its cases are there."""

import re
from collections import Counter

from tests.conftest import PROJECT
from tests.unit.sources import DOCS, defined_tests, text

PAGE = text(DOCS / "failure-cases.md")
SECTIONS = ["Planning", "Reading", "Commit", "Orchestration", "Replay", "Proof machinery"]
CASES = dict(zip(SECTIONS, (18, 28, 15, 11, 17, 9), strict=True))
"""How many each section has, so that no row is lost unnoticed."""
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
REPORT = re.compile(r"SPARK-\d+|#\d+|commit_unknown_result")


def rows(page: str) -> list[list[str]]:
    """The section and the cells of every line of a table, in order."""
    found, heading = [], ""
    for line in page.splitlines():
        heading = line.removeprefix("## ") if line.startswith("## ") else heading
        if line.startswith("|"):
            found.append([heading, *(cell.strip() for cell in line.strip("|").split("|"))])
    return found


def unknown(page: str) -> list[str]:
    """Tests that are named and that no file has."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(page)
        if not (PROJECT / path).is_file() or name not in defined_tests(PROJECT / path)
    ]


def test_every_section_has_its_cases_each_with_an_answer_and_a_test() -> None:
    """In order, none twice; all 28 reports are named, as their projects number them."""
    found = rows(PAGE)
    heads = [[section, "case", "what Tally does", "test"] for section in SECTIONS]
    assert [row for row in found if row[1] == "case"] == heads
    cases = [row for row in found if row[1] != "case" and set(row[1]) != {"-"}]
    assert Counter(section for section, *_ in cases) == CASES
    assert len({(section, case) for section, case, _, _ in cases}) == len(cases)
    for _, case, answer, tests in cases:
        assert case
        assert answer.endswith("."), case
        assert NAMED.search(tests), case
    reports = REPORT.findall(" ".join(case for _, case, _, _ in cases))
    assert reports == REPORT.findall(PAGE)
    assert len(set(reports)) == 28


def test_every_named_test_exists() -> None:
    """Each test is in the file that the row names; the check can fail, also for this file."""
    assert unknown(PAGE) == []
    assert len(NAMED.findall(PAGE)) == PAGE.count("::test_")
    here = "tests/unit/test_failure_cases.py"
    assert unknown(f"| one | It does. | `{here}::test_every_named_test_exists` |") == []
    for wrong in (
        *(f"{here}::test_that_nobody_has_written", f"{here}::unknown"),
        "tests/unit/test_nowhere.py::test_every_named_test_exists",
        f"{here}::TestNothing::test_every_named_test_exists",
    ):
        assert unknown(f"| two | It does. | `{wrong}` |\n") == [wrong]
