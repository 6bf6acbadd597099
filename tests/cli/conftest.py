"""The command line as a program would call it, in this process and against real servers."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from tally.cli import cli
from tally.cli.app import App
from tally.context import OpenReader
from tests.world import Value, World

MINUTE = "2017-07-30 14:09:00"
LINE = "2017-07-30 14:09:08 ERROR some message"
PASSWORD = "only-for-this-test"  # noqa: S105 - a user that lives as long as the test


@pytest.fixture(autouse=True)
def _no_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor asks Airflow where one is configured; another test may have done so."""
    for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
        monkeypatch.delenv(name)


@dataclass(frozen=True)
class Answer:
    """What a call of ``tally`` left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """Stdout as JSON: exactly one document."""
        return json.loads(self.stdout)

    def ends(self, exit_code: int, *said: str) -> "Answer":
        """Check the exit code, and that stderr has each of these texts; returns itself."""
        assert self.exit_code == exit_code, self
        assert [text for text in said if text not in self.stderr] == [], self.stderr
        return self


Call = Callable[..., Answer]


@pytest.fixture
def ports() -> dict[str, Any]:
    """Fields of the :class:`App` of every command of the test that are not as usual."""
    return {}


@pytest.fixture
def tally(world: World, ports: dict[str, Any]) -> Call:
    """Call the command line, without Spark; by keyword: fields of the command's :class:`App`."""

    def without_spark(*_: Any) -> OpenReader:
        return lambda: nullcontext(world.reader)

    def call(*words: str, **fields: Any) -> Answer:
        app = App(**{"read_with": without_spark, **ports, **fields})
        result = CliRunner().invoke(cli, list(words), obj=app)
        return Answer(exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr)

    return call


@pytest.fixture
def empty_database(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty database, and a user that may do everything there, configured.

    A dash is common in names of databases; every statement meets it, the doctor's too.
    """
    name = f"my-{world.name}"
    world.as_root(
        f"create database `{name}`",
        f"create user '{world.name}'@'%' identified by '{PASSWORD}'",
        f"grant all on `{name}`.* to '{world.name}'@'%'",
    )
    monkeypatch.setenv("TALLY_MYSQL__DATABASE", name)
    monkeypatch.setenv("TALLY_MYSQL__USER", world.name)
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", PASSWORD)
    yield name
    world.as_root(f"drop database `{name}`", f"drop user '{world.name}'@'%'")


def commit(world: World, *lines: Value, partition: int = 0) -> int:
    """Write lines to a partition, and count all that is new; returns the batch."""
    world.produce(lines, partition)
    ran = world.minute()
    assert ran is not None
    return ran.batch_id
