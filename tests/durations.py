"""How long each test takes, and the order of the next run that follows from it.

Every run writes :data:`FILE`. A file's tests stay on one worker, and the files that take longest
are handed out first.
"""

import json
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

FILE: Final = Path(__file__).parents[1] / ".tally" / "test-durations.json"
"""Seconds of each test, of the latest run that had it."""

FILES_SHOWN: Final = 10

FIRST: Final = (
    "tests/console/test_browser.py",
    "tests/stack/test_spark_cluster.py",
    "tests/first_use/test_own_servers.py",
    "tests/stack/test_spark_server.py",
    "tests/properties/test_machine.py",
    "tests/spark/test_json_columns.py",
    "tests/spark/test_line_columns.py",
    "tests/airflow/test_console.py",
)
"""The longest files, for a checkout in which nothing was recorded of them yet."""


class Durations:
    """Records durations, and orders the tests by those of the run before."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._before = _read(file)
        self._tests: dict[str, float] = defaultdict(float)
        self._files: dict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the files that take longest first."""
        total: dict[str, float] = defaultdict(float)
        for item in items:
            total[_file(item.nodeid)] += self._before.get(item.nodeid, 0)

        def order(item: pytest.Item) -> tuple[int, float]:
            name = _file(item.nodeid)
            first = FIRST.index(name) if name in FIRST and not total[name] else len(FIRST)
            return first, -total[name]

        items.sort(key=order)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test took."""
        self._tests[report.nodeid] += report.duration
        self._files[_file(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Write the file, and show the files that took longest."""
        if hasattr(config, "workerinput") or not self._tests:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({**self._before, **self._tests}, indent=0))
        terminalreporter.section("slowest files")
        longest = sorted(self._files.items(), key=lambda pair: -pair[1])
        for name, seconds in longest[:FILES_SHOWN]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
        total = sum(self._files.values())
        terminalreporter.write_line(f"{total:7.1f} s  in all {len(self._files)} files")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _read(file: Path) -> dict[str, float]:
    with suppress(FileNotFoundError, ValueError):  # none yet, or one that was cut off
        found = json.loads(file.read_text(encoding="utf-8"))
        return {test: s for test, s in found.items() if isinstance(s, float)}
    return {}
