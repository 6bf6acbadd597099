"""A browser, and the servers behind its pages."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tally_local.stack.test_programs import TestPrograms
from tests.conftest import PROJECT
from tests.console.collector import Collector, collecting
from tests.console.running_stack import RunningStack, running_stack
from tests.first_use.pages import checkout

# Chromium in a container, and without asking its makers for anything.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
START_MS = 180_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser."""
    programs = TestPrograms(PROJECT / ".tally" / "downloads")
    programs.install(print)
    program = programs.chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program.path,
            env={**os.environ, **program.environment},
            args=list(FLAGS),
            timeout=START_MS,
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """What receives Airflow's metrics."""
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, collector: Collector
) -> Iterator[RunningStack]:
    """The servers with an hour of lines; shared by the tests, in the order of their file."""
    folder: Path = checkout(tmp_path_factory.mktemp("console") / "a checkout")
    metrics = {
        "otel_on": True,
        "otel_host": "127.0.0.1",
        "otel_port": collector.port,
        "otel_interval_milliseconds": 1_000,
    }
    with running_stack(folder, {"metrics": metrics}) as found:
        yield found
