"""An Airflow of the tests' own: a home in a temporary folder, SQLite, this checkout's DAGs."""

import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow.dag_run import Finished, RunDag, use_spark
from tests.servers import PROJECT
from tests.world import World

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag
    from fastapi import FastAPI
    from fastapi.testclient import TestClient


# Airflow reads its environment once, when it is first imported; that is while tests are collected.
# The shell's settings of another Airflow must not reach the tests.
for name in [name for name in os.environ if name.startswith(("AIRFLOW", "_AIRFLOW"))]:
    del os.environ[name]
HOME = Path(tempfile.mkdtemp(prefix="tally-airflow-"))
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",  # half a minute may pass on a busy machine
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:viewer",
    "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}

# Airflow identifies runs by their logical dates, which the DAGs ignore.
_MINUTES = count()

CONFIG = """
[pipelines.error_log]
topics = ["alog"]
tags = ["web"]
owner = "ann"

[pipelines.other]
topics = ["one", "two"]
result_table = "other_counts"
schedule = "*/5 * * * *"
patience_s = 1200
prune_after_days = 0
"""


Parse = Callable[..., "DagBag"]


@pytest.fixture(scope="session", autouse=True)
def airflow_home() -> Iterator[Path]:
    """Airflow's home, with an up-to-date metadata database."""
    from airflow.utils.db import initdb

    initdb()
    yield HOME
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of two pipelines; its servers do not exist."""
    path = tmp_path / "tally.toml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("TALLY_CONFIG", str(path))
    return path


@pytest.fixture
def parse(config: Path) -> Parse:
    """Parses the DAG folder with a configuration, as Airflow does."""
    from airflow.dag_processing.dagbag import DagBag

    def parse_with(text: str = CONFIG) -> "DagBag":
        config.write_text(text, encoding="utf-8")
        return DagBag(dag_folder=PROJECT / "dags")

    return parse_with


@pytest.fixture
def bag(parse: Parse) -> "DagBag":
    return parse()


@pytest.fixture
def run_dag(world: World) -> RunDag:
    """Runs a DAG; with ``again`` all tasks of the run before are cleared and run once more."""
    from airflow.dag_processing.dagbag import DagBag

    folder = os.environ["AIRFLOW__CORE__DAGS_FOLDER"]
    moments = [datetime(2026, 1, 1, tzinfo=UTC)]

    def run(dag_id: str, conf: Mapping[str, Any] | None = None, *, again: bool = False) -> Finished:
        bag = DagBag(dag_folder=folder)
        assert bag.import_errors == {}
        if not again:
            moments.append(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=next(_MINUTES)))
        # The run's id comes from `run_after`.
        at = {"logical_date": moments[-1], "run_after": moments[-1]}
        return Finished(bag.dags[dag_id].test(**at, run_conf=dict(conf or {})))

    return run


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spark-submit that commits the batch without Spark, and the connection that leads to it."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    command = shlex.join([sys.executable, "-m", "tests.airflow.stand_in"])
    there = f"cd {shlex.quote(str(PROJECT))}"
    program.write_text(f'#!/bin/bash\n{there} && exec {command} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", "commit")
    use_spark(monkeypatch)
    return program


@pytest.fixture(scope="session")
def api_server(airflow_home: Path) -> "Iterator[FastAPI]":
    """Airflow's API server with its plugins; its configuration is a link."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    from airflow import plugins_manager

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        patch.setenv("TALLY_CONFIG", str(airflow_home / "tally.toml"))
        for function in vars(plugins_manager).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
        purge_cached_app()
        yield create_app(apps="core")
    purge_cached_app()


@pytest.fixture
def client(
    api_server: "FastAPI",
    airflow_home: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> "TestClient":
    """A browser of the API server, which reads the configuration of the test."""
    from fastapi.testclient import TestClient

    found = request.getfixturevalue("world" if "world" in request.fixturenames else "config")
    link = airflow_home / "tally.toml"
    link.unlink(missing_ok=True)
    link.symlink_to(getattr(found, "config", found))
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    return TestClient(api_server, follow_redirects=False)


def log_in(client: "TestClient", role: str | None) -> None:
    """Log Ann in; without a role she has no permission."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    manager: Any = get_auth_manager()
    token = manager.generate_jwt(SimpleAuthManagerUser(username="ann", role=role))
    client.cookies.set("_token", token)


@pytest.fixture
def viewer(client: "TestClient") -> "TestClient":
    log_in(client, "viewer")
    return client


@pytest.fixture
def metrics_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of a scraper; the endpoint is on."""
    token = secrets.token_hex(32)
    path = tmp_path / "metrics-token"
    path.write_text(f"{token}\n", encoding="utf-8")
    monkeypatch.setenv("TALLY_CONSOLE__METRICS_TOKEN_FILE", str(path))
    return token
