"""The durations of a run, and the order of the next one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.durations import FIRST, OWN_SERVERS, Durations


class Item(SimpleNamespace):
    """As much of a test as the order looks at."""

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        """Keep the group."""
        self.group = mark.args[0]


def items(*ids: str, own: str = "") -> list[Any]:
    return [Item(nodeid=i, fixturenames=["own_stack"] if i == own else []) for i in ids]


def ordered(file: Path, found: list[Any]) -> list[tuple[str, str]]:
    Durations(file).pytest_collection_modifyitems(found)
    return [(item.nodeid, item.group) for item in found]


def test_the_longest_group_comes_first_and_stays_together(tmp_path: Path) -> None:
    """A group is a file, or all tests with servers of their own; its tests keep their order."""
    file = tmp_path / "durations.json"
    seconds = {"a.py::1": 1.0, "b.py::1": 2.0, "b.py::2": 2.5, "c.py::1": 3.0, "c.py::own": 5.0}
    file.write_text(json.dumps({name: {"call": s} for name, s in seconds.items()}))
    found = items("a.py::1", "a.py::new", *list(seconds)[1:], own="c.py::own")
    assert ordered(file, found) == [
        ("c.py::own", OWN_SERVERS),
        ("b.py::1", "b.py"),
        ("b.py::2", "b.py"),
        ("c.py::1", "c.py"),
        ("a.py::1", "a.py"),
        ("a.py::new", "a.py"),
    ]


@pytest.mark.parametrize("content", [None, "{ cut o"])
def test_without_a_record_a_list_says_what_is_long(tmp_path: Path, content: str | None) -> None:
    """Also where the record was cut off."""
    file = tmp_path / "durations.json"
    if content is not None:
        file.write_text(content)
    found = items("quick.py::1", f"{FIRST[1]}::1", f"{FIRST[0]}::1")
    assert [group for _, group in ordered(file, found)] == [*FIRST[:2], "quick.py"]


def test_a_run_is_recorded_and_its_slowest_groups_are_shown(tmp_path: Path) -> None:
    """Phases and fixtures of each test; tests that did not run keep what they had."""
    file = tmp_path / "below" / "durations.json"
    file.parent.mkdir()
    file.write_text('{"a.py::old": {"call": 9.0}}')
    durations = Durations(file)
    for nodeid, when, took in (
        ("a.py::t[x@y]@a.py", "setup", 1.0),
        ("a.py::t[x@y]@a.py", "call", 2.0),
        ("b.py::t", "call", 0.5),
    ):
        durations.pytest_runtest_logreport(
            SimpleNamespace(
                nodeid=nodeid,
                when=when,
                duration=took,
                user_properties=[("fixtures", {"world": 0.9, "quick": 0.01})],
            )
        )
    shown: list[str] = []
    reporter = SimpleNamespace(section=shown.append, write_line=shown.append)
    durations.pytest_terminal_summary(reporter, SimpleNamespace())
    assert json.loads(file.read_text()) == {
        "a.py::old": {"call": 9.0},
        "a.py::t[x@y]": {"setup": 1.0, "call": 2.0, "fixtures": {"world": 0.9}},
        "b.py::t": {"call": 0.5},
    }
    assert [" ".join(line.split()) for line in shown] == [
        "slowest groups",
        "3.0 s a.py",
        "0.5 s b.py",
        "3.5 s in all 2 groups",
    ]
