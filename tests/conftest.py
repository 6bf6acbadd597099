"""Shared fixtures: real servers for the session, and for each test a world of its own."""

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock, Timeout

from tally.app.migrate import migrate
from tally.config.settings import Settings
from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.mysql.transactions import Database
from tally.spark.session import QUICK_START, spark_session
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.connect_server import ConnectServer, connect_server
from tests.world import World, make_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT = Path(__file__).parents[1]
HOME_VARIABLE = "TALLY_TEST_HOME"


def pytest_configure() -> None:
    """Set Spark's options for drivers that live for seconds, as Airflow does for small batches."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_START)
    # Each test has settings of its own; those of the shell would lead to other servers.
    for name in [name for name in os.environ if is_setting(name)]:
        del os.environ[name]


def is_setting(name: str) -> bool:
    """Whether a variable is a setting of Tally's, and not one of the tests' own."""
    upper = name.upper()
    whole = (CONFIG_VARIABLE, SECRETS_VARIABLE)
    return upper in whole or (upper.startswith("TALLY_") and "__" in upper)


@contextmanager
def free_home() -> Iterator[Path]:
    """A home that no other test session of this checkout uses at the moment."""
    for number in itertools.count():
        home = PROJECT / ".tally" / f"test-{number}"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(home / "session.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        with lock:
            yield home
        return


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Kafka and MySQL, apart from the stack that ``tally up`` starts.

    To share servers among many short sessions, set the home variable, and stop them after the last.
    """
    if home_of_many := os.environ.get(HOME_VARIABLE):
        stack = Stack(project=PROJECT, home=Path(home_of_many), announce=print)
        stack.up([Part.KAFKA, Part.MYSQL])
        yield stack
        return
    with free_home() as home:
        stack = Stack(project=PROJECT, home=home, announce=print)
        stack.down()  # a killed session may have left MySQL read-only, or stopped
        shutil.rmtree(home / "kafka", ignore_errors=True)  # else topics of all sessions add up
        stack.up([Part.KAFKA, Part.MYSQL])
        yield stack
        stack.down()


@pytest.fixture(scope="session")
def migrated(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The stack with an up-to-date ledger."""
    folder = tmp_path_factory.mktemp("migrate")
    settings = make_settings(stack, folder / "tally.toml", {"first": {"topics": ["first"]}})
    migrate(Database(settings=settings.mysql), settings)
    return stack


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One Spark session, shared by all tests that need no session of their own."""
    from tally.config.servers import SparkSettings  # noqa: PLC0415

    downloads = Stack(project=PROJECT)
    downloads.install()
    # Records of 40 MB, the largest that JSON allows, fill Spark's default of 1 GB.
    heap = {"spark.driver.memory": "3g"}
    settings = SparkSettings(master="local[2]", jars_dir=downloads.jars_dir, conf=heap)
    with spark_session(settings, "tests") as session:
        session.sparkContext.setLogLevel("ERROR")  # pytest shows it with a test that fails
        yield session


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """One Spark Connect server for all tests; it has the connector and asks for a token."""
    downloads = Stack(project=PROJECT)
    downloads.install()
    with connect_server(tmp_path_factory.mktemp("connect"), downloads.jars_dir) as server:
        yield server


@pytest.fixture
def world(migrated: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A pipeline of the test's own on the shared servers: own name, topic and result table."""
    world = World.create(migrated, tmp_path)
    monkeypatch.setenv("TALLY_CONFIG", str(world.config))
    return world


@pytest.fixture
def settings(world: World) -> Settings:
    """The configuration of the test's world."""
    return world.settings
