"""How long each test and fixture takes, and the order of the next run that follows from it.

Every run writes :data:`FILE`. What stays together on one worker is a file, or a lane of files that
share what is expensive to start; what takes longest is handed out first.
"""

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.servers import PROJECT

FILE: Final = PROJECT / ".tally" / "test-durations.json"
"""Seconds of each test's phases and fixtures, of the latest run that had each."""

Recorded = dict[str, dict[str, Any]]

FILES_SHOWN: Final = 10

LANES: Final = {
    "servers that are killed": r"\b(own_stack|own_world|own_migrated|new_pipeline)\b",
    "a Spark session": r'\bspark: "?SparkSession|\bconnect: ConnectServer|value\("(spark|connect)"',
}
"""By lane what the files of its tests contain: fixtures of the session, which start processes."""

FIRST: Final = (
    "a Spark session",
    "tests/console/test_browser.py",
    "servers that are killed",
    "tests/stack/test_spark_cluster.py",
    "tests/first_use/test_own_servers.py",
    "tests/stack/test_spark_server.py",
)
"""The longest lanes and files, for a checkout in which nothing was recorded of them yet."""

DURATIONS: Final = "tally-durations"
"""Under which name workers get what was recorded: all of them must order the tests alike."""

_FIXTURES: Final = pytest.StashKey[dict[str, float]]()


@cache
def lane_of(file: str) -> str:
    """The lane of a test file, or the file itself, by its path in the project."""
    path = PROJECT / file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return next((lane for lane, word in LANES.items() if re.search(word, text)), file)


class Lanes(LoadFileScheduling):
    """Hands out lanes, and files that are in none."""

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(_file(nodeid))


class Durations:
    """Records durations, and orders the tests by those of the run before."""

    def __init__(self, before: Recorded | None = None, *, file: Path = FILE) -> None:
        self._file = file
        self._before = _read(file) if before is None else before
        self._tests: Recorded = {}
        self._files: dict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the lanes and files that take longest first."""
        total: dict[str, float] = defaultdict(float)
        for item in items:
            phases = self._before.get(item.nodeid, {})
            took = sum(phases.get(phase, 0) for phase in ("setup", "call", "teardown"))
            file = _file(item.nodeid)
            for name in {lane_of(file), file}:
                total[name] += took
        rank = {name: number for number, name in enumerate(total)}  # as they were collected

        def order(item: pytest.Item) -> tuple[float, ...]:
            file = _file(item.nodeid)
            lane = lane_of(file)
            first = FIRST.index(lane) if lane in FIRST and not total[lane] else len(FIRST)
            return first, -total[lane], rank[lane], -total[file], rank[file]

        items.sort(key=order)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: WorkerController) -> None:
        """Send a worker what was recorded."""
        node.workerinput[DURATIONS] = self._before

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: Producer
    ) -> LoadFileScheduling | None:
        """Keep lanes together where files are."""
        return Lanes(config, log) if config.getvalue("dist") == "loadfile" else None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: "pytest.FixtureDef[Any]", request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """Measure a fixture; of nested ones the outer includes the inner."""
        begun = time.perf_counter()
        try:
            return (yield)
        finally:
            known = request.node.stash.setdefault(_FIXTURES, {})
            known[fixturedef.argname] = time.perf_counter() - begun

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        """Send the durations of fixtures to the process that writes the file."""
        report = yield
        if report.when == "setup":
            found: dict[str, float] = {}
            for node in item.listchain():
                found |= node.stash.get(_FIXTURES, {})
                node.stash[_FIXTURES] = {}
            report.user_properties.append(("fixtures", found))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test took."""
        phases = self._tests.setdefault(report.nodeid, {})
        phases[report.when] = round(report.duration, 3)
        self._files[_file(report.nodeid)] += report.duration
        for key, value in report.user_properties:
            if key == "fixtures" and report.when == "setup":
                long = {fixture: round(s, 3) for fixture, s in value.items() if s >= 0.05}
                phases["fixtures"] = long

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Write the file, and show the files that took longest."""
        if hasattr(config, "workerinput") or not self._tests:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({**self._before, **self._tests}, indent=0))
        written.replace(self._file)
        terminalreporter.section("slowest files")
        longest = sorted(self._files.items(), key=lambda pair: -pair[1])
        for name, seconds in longest[:FILES_SHOWN]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
        total = sum(self._files.values())
        terminalreporter.write_line(f"{total:7.1f} s  in all {len(self._files)} files")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _read(file: Path) -> Recorded:
    with suppress(FileNotFoundError, ValueError):  # none yet, or one that was cut off
        return dict(json.loads(file.read_text(encoding="utf-8")))
    return {}
