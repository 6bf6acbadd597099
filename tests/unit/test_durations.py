"""The durations of a run, and the order of the next one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.durations import FIRST, OWN_SERVERS, Durations


class Item(SimpleNamespace):
    """As much of a test as the order looks at."""

    def add_marker(self, mark: Any) -> None:
        """Keep the group."""
        self.group = mark.args[0]


def ordered(file: Path, *ids: str) -> list[tuple[str, str]]:
    """Tests in the order in which they would run, with their groups; one has its own servers."""
    items: list[Any] = [Item(nodeid=i, fixturenames=["own_stack"] * ("own" in i)) for i in ids]
    durations = Durations(file)
    for item in items:
        durations.pytest_itemcollected(item)
    durations.pytest_collection_modifyitems(items)
    return [(item.nodeid, item.group) for item in items]


def test_the_longest_group_comes_first_and_stays_together(tmp_path: Path) -> None:
    """A group is a file, or all tests with servers of their own; without a record a list says."""
    file = tmp_path / "durations.json"
    fresh = [f"{FIRST[0]}::1", f"{FIRST[1]}::1", "quick.py::1"]
    for content in ("", "{ cut o"):
        file.write_text(content)
        assert [nodeid for nodeid, _ in ordered(file, *fresh[::-1])] == fresh
    seconds = {"a.py::1": 1.0, "b.py::1": 2.0, "b.py::2": 2.5, "c.py::1": 3.0, "c.py::own": 5.0}
    file.write_text(json.dumps({name: {"call": s} for name, s in seconds.items()}))
    assert ordered(file, "a.py::1", "a.py::new", *list(seconds)[1:]) == [
        *(("c.py::own", OWN_SERVERS), ("b.py::1", "b.py"), ("b.py::2", "b.py")),
        *(("c.py::1", "c.py"), ("a.py::1", "a.py"), ("a.py::new", "a.py")),
    ]


def test_a_group_is_handed_to_one_worker(request: pytest.FixtureRequest) -> None:
    """In ``make test`` xdist has found the group of each test, and so of this one."""
    is_grouped = request.config.getoption("loadgroup", default=False)
    assert request.node.nodeid.endswith("@tests/unit/test_durations.py") is bool(is_grouped)


def test_a_run_is_recorded_and_its_slowest_groups_are_shown(tmp_path: Path) -> None:
    """Phases and fixtures of each test; tests that did not run keep what they had."""
    file = tmp_path / "durations.json"
    file.write_text('{"a.py::old": {"call": 9.0}}')
    durations = Durations(file)
    properties = [("fixtures", {"world": 0.9, "quick": 0.01})]
    for nodeid, when, took in (
        *(("a.py::t[x@y]@a.py", "setup", 1.0), ("a.py::t[x@y]@a.py", "call", 2.0)),
        ("b.py::t", "call", 0.5),
    ):
        report: Any = SimpleNamespace(nodeid=nodeid, when=when, duration=took)
        report.user_properties = properties
        durations.pytest_runtest_logreport(report)
    shown: list[str] = []
    reporter = SimpleNamespace(section=shown.append, write_line=shown.append)
    durations.pytest_terminal_summary(reporter, SimpleNamespace())  # type: ignore[arg-type]
    assert json.loads(file.read_text()) == {
        "a.py::old": {"call": 9.0},
        "a.py::t[x@y]": {"setup": 1.0, "call": 2.0, "fixtures": {"world": 0.9}},
        "b.py::t": {"call": 0.5},
    }
    lines = ["slowest groups", "3.0 s a.py", "0.5 s b.py", "3.5 s in all 2 groups"]
    assert [" ".join(line.split()) for line in shown] == lines
