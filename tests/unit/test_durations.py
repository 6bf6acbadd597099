"""The durations of a run, and the order of the next one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.durations import FIRST, LANES, Durations, lane_of


def ordered(file: Path, *ids: str) -> list[str]:
    """Tests in the order in which they would run."""
    items: list[Any] = [SimpleNamespace(nodeid=nodeid) for nodeid in ids]
    Durations(file=file).pytest_collection_modifyitems(items)
    return [item.nodeid for item in items]


def test_the_longest_file_comes_first_and_stays_together(tmp_path: Path) -> None:
    """By what was recorded; without a record a list says what is long."""
    file = tmp_path / "durations.json"
    fresh = [f"{FIRST[1]}::1", f"{FIRST[3]}::1", "quick.py::1"]
    for content in ("", "{ cut o"):
        file.write_text(content)
        assert ordered(file, *fresh[::-1]) == fresh
    seconds = {"a.py::1": 1.0, "b.py::1": 2.0, "b.py::2": 2.5, "c.py::1": 3.0}
    file.write_text(json.dumps({name: {"call": s} for name, s in seconds.items()}))
    assert ordered(file, "a.py::1", "a.py::new", *list(seconds)[1:]) == [
        *("b.py::1", "b.py::2", "c.py::1", "a.py::1", "a.py::new")
    ]


def test_files_that_share_servers_or_a_session_are_one_lane(tmp_path: Path) -> None:
    """They are told by their fixtures; the lane comes first that takes longest in all."""
    killed, spark = LANES
    losses, machine = "tests/minute/test_losses.py", "tests/properties/test_machine.py"
    lanes = {losses: killed, machine: killed, "tests/spark/test_line_columns.py": spark}
    assert {file: lane_of(file) for file in (*lanes, "a.py")} == {**lanes, "a.py": "a.py"}
    file = tmp_path / "durations.json"
    took = {f"{losses}::1": 1.0, "a.py::1": 2.5, f"{machine}::1": 2.0}
    file.write_text(json.dumps({name: {"call": s} for name, s in took.items()}))
    assert ordered(file, *took) == [f"{machine}::1", f"{losses}::1", "a.py::1"]


def test_a_run_is_recorded_and_its_slowest_groups_are_shown(tmp_path: Path) -> None:
    """Phases and fixtures of each test; tests that did not run keep what they had."""
    file = tmp_path / "durations.json"
    file.write_text('{"a.py::old": {"call": 9.0}}')
    durations = Durations(file=file)
    properties = [("fixtures", {"world": 0.9, "quick": 0.01})]
    for nodeid, when, took in (
        *(("a.py::t[x@y]", "setup", 1.0), ("a.py::t[x@y]", "call", 2.0)),
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
    lines = ["slowest files", "3.0 s a.py", "0.5 s b.py", "3.5 s in all 2 files"]
    assert [" ".join(line.split()) for line in shown] == lines
