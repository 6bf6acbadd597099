"""An Airflow of the tests' own: a home in a temporary folder, SQLite, this checkout's DAGs."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

CHECKOUT = Path(__file__).parents[2]

# Airflow reads its environment once, when it is first imported; that is while tests are collected.
HOME = Path(tempfile.mkdtemp(prefix="tally-airflow-"))
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "dags"),
    "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "ann:viewer",
    "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}

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
"""


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
def load_bag(config: Path) -> "Callable[[], DagBag]":
    """Parses the DAG folder, as Airflow does."""
    assert config.is_file()

    def load() -> "DagBag":
        from airflow.dag_processing.dagbag import DagBag

        return DagBag(dag_folder=CHECKOUT / "dags")

    return load


@pytest.fixture
def bag(load_bag: "Callable[[], DagBag]") -> "DagBag":
    """The DAGs of the configuration."""
    return load_bag()


@pytest.fixture
def in_fresh_python(config: Path) -> Callable[[str], str]:
    """Runs a script in a Python that has imported nothing yet; returns what it prints."""

    def run(script: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "TALLY_CONFIG": str(config)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run
