"""Shared fixtures: real servers for the session, and for each test a world of its own."""

import atexit
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.spark.java import QUICK_START
from tally.spark.session import spark_session
from tally_local.stack.stack import Stack
from tests.connect_server import ConnectServer, connect_server
from tests.durations import DURATIONS, Durations
from tests.servers import PROJECT, home_of_session, keep_what_failed, own_servers, shared_stack
from tests.world import World, with_ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VARIABLE: Final = "JDK_JAVA_OPTIONS"  # which each JVM reads
HOME: Final = pytest.StashKey[Path | None]()


def pytest_configure(config: pytest.Config) -> None:
    """Have every JVM start quickly, as none lives for long; leave the shell's settings out."""
    os.environ.setdefault(JAVA_VARIABLE, QUICK_START)
    # Each test has settings of its own; those of the shell would lead to other servers.
    for name in [name for name in os.environ if is_setting(name)]:
        del os.environ[name]
    # Behind whatever the modules that are still to be imported do at the end.
    ends = ExitStack()
    atexit.register(ends.close)
    config.stash[HOME] = home = ends.enter_context(home_of_session())
    if home is not None:  # a second Ctrl-C does not keep the servers from being stopped
        ends.callback(signal.signal, signal.SIGINT, signal.SIG_IGN)
    durations = Durations(getattr(config, "workerinput", {}).get(DURATIONS))
    config.pluginmanager.register(durations, DURATIONS)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep logs and pictures for whoever looks for the cause of a failure."""
    home = session.config.stash[HOME]
    if home is not None and exitstatus == pytest.ExitCode.TESTS_FAILED:
        keep_what_failed(home)


def is_setting(name: str) -> bool:
    """Whether a variable is a setting of Tally's, and not one of the tests' own."""
    upper = name.upper()
    whole = (CONFIG_VARIABLE, SECRETS_VARIABLE)
    return upper in whole or (upper.startswith("TALLY_") and "__" in upper)


@pytest.fixture
def quiet_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java says nothing of the options: Spark's own variable has them, for its drivers alone."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", QUICK_START)
    monkeypatch.delenv(JAVA_VARIABLE)


@pytest.fixture(scope="session")
def stack() -> Stack:
    """Kafka and MySQL of all workers, apart from the stack that ``tally up`` starts."""
    return shared_stack()


@pytest.fixture(scope="session")
def own_stack() -> Iterator[Stack]:
    """Kafka and MySQL that a test may kill, restart or reconfigure; durable, as in production."""
    with own_servers() as stack:
        yield stack


@pytest.fixture(scope="session")
def migrated(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The stack with an up-to-date ledger."""
    return with_ledger(stack, tmp_path_factory.mktemp("migrate"))


@pytest.fixture(scope="session")
def own_migrated(own_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    return with_ledger(own_stack, tmp_path_factory.mktemp("migrate"))


@pytest.fixture(scope="session")
def jars_dir() -> Path:
    """The connector's jars with the archive that the set-up made."""
    downloads = Stack(project=PROJECT)
    downloads.install()
    return downloads.jars_dir


@pytest.fixture(scope="session")
def spark(jars_dir: Path) -> "Iterator[SparkSession]":
    """One Spark session, shared by all tests that need no session of their own."""
    from tally.config.servers import SparkSettings  # noqa: PLC0415

    # Records of 40 MB, the largest that JSON allows, fill Spark's default of 1 GB.
    heap = {"spark.driver.memory": "3g"}
    settings = SparkSettings(master="local[2]", jars_dir=jars_dir, conf=heap)
    with spark_session(settings, "tests") as session:
        session.sparkContext.setLogLevel("ERROR")  # pytest shows it with a test that fails
        yield session


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory, jars_dir: Path) -> Iterator[ConnectServer]:
    """One Spark Connect server for all tests; it has the connector and asks for a token."""
    with connect_server(tmp_path_factory.mktemp("connect"), jars_dir) as server:
        yield server


@pytest.fixture
def world(migrated: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A pipeline of the test's own on the shared servers: own name, topic and result table."""
    world = World.create(migrated, tmp_path)
    monkeypatch.setenv("TALLY_CONFIG", str(world.config))
    return world


@pytest.fixture
def own_world(own_migrated: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A pipeline on servers that the test may kill, restart or reconfigure."""
    world = World.create(own_migrated, tmp_path)
    monkeypatch.setenv("TALLY_CONFIG", str(world.config))
    return world
