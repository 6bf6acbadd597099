"""How long each test and fixture takes, and the order of the next run that follows from it.

Every run writes :data:`FILE`. Tests are handed to the workers in groups, the longest first. A
group is a file; the tests that have servers of their own are one group, so that the servers are
started once.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

FILE: Final = Path(__file__).parents[1] / ".tally" / "test-durations.json"
"""Seconds of each test's phases and fixtures, of the latest run that had each."""

GROUPS_SHOWN: Final = 10

OWN_SERVERS: Final = "own servers"
"""The group of the tests that stop, kill or reconfigure a server."""

FIRST: Final = (
    "tests/console/test_browser.py",
    "tests/stack/test_spark_cluster.py",
    "tests/first_use/test_own_servers.py",
    "tests/stack/test_spark_server.py",
    OWN_SERVERS,
    "tests/properties/test_machine.py",
    "tests/spark/test_json_columns.py",
    "tests/spark/test_line_columns.py",
    "tests/airflow/test_console.py",
)
"""The longest groups, for a checkout in which nothing was recorded yet."""

_FIXTURES: Final = pytest.StashKey[dict[str, float]]()


class Durations:
    """Records durations, and orders the tests by those of the run before."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._before = _read(file)
        self._tests: dict[str, dict[str, Any]] = {}
        self._groups: dict[str, float] = defaultdict(float)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Name the test's group, before xdist looks for it."""
        item.add_marker(pytest.mark.xdist_group(group_of(item)))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the longest groups first."""
        total: dict[str, float] = defaultdict(float)
        for item in items:
            total[group_of(item)] += _seconds(self._before.get(_parted(item.nodeid)[0], {}))
        rank = {name: number for number, name in enumerate(total)}  # as they were collected

        def order(item: pytest.Item) -> tuple[float, int, int]:
            name = group_of(item)
            first = FIRST.index(name) if name in FIRST and not self._before else len(FIRST)
            return -total[name], first, rank[name]

        items.sort(key=order)

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
        name, _, group = _parted(report.nodeid)
        phases = self._tests.setdefault(name, {})
        phases[report.when] = round(report.duration, 3)
        self._groups[group or name.partition("::")[0]] += report.duration
        for key, value in report.user_properties:
            if key == "fixtures" and report.when == "setup":
                long = {fixture: round(s, 3) for fixture, s in value.items() if s >= 0.05}
                phases["fixtures"] = long

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Write the file, and show the groups that took longest."""
        if hasattr(config, "workerinput") or not self._tests:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({**self._before, **self._tests}, indent=0))
        terminalreporter.section("slowest groups")
        longest = sorted(self._groups.items(), key=lambda pair: -pair[1])
        for group, seconds in longest[:GROUPS_SHOWN]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {group}")
        total = sum(self._groups.values())
        terminalreporter.write_line(f"{total:7.1f} s  in all {len(self._groups)} groups")


def group_of(item: pytest.Item) -> str:
    """The group in which a test is handed to a worker."""
    if "own_stack" in getattr(item, "fixturenames", ()):
        return OWN_SERVERS
    return item.nodeid.partition("::")[0]


def _parted(nodeid: str) -> tuple[str, str, str]:
    """A test's own id, and its group, which xdist writes behind it."""
    if nodeid.rfind("@") > nodeid.rfind("]"):
        return nodeid.rpartition("@")
    return nodeid, "", ""


def _seconds(phases: Mapping[str, Any]) -> float:
    return float(sum(phases.get(phase, 0) for phase in ("setup", "call", "teardown")))


def _read(file: Path) -> dict[str, dict[str, Any]]:
    with suppress(FileNotFoundError, ValueError):  # none yet, or one that was cut off
        return dict(json.loads(file.read_text(encoding="utf-8")))
    return {}
