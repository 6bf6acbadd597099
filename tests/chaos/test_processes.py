"""A short campaign: real processes are killed and paused, and every line counts once."""

import logging
from pathlib import Path

import pytest

from tests.campaigns import share
from tests.chaos.campaign import Orders, run_campaign

pytestmark = [pytest.mark.stack, pytest.mark.timeout(3600)]


def test_every_line_counts_once_whatever_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The command line's processes, Kafka and MySQL; ``make chaos`` adds Spark and Airflow."""
    # A broker that is killed is no news; thousands of refused connections would hide the problem.
    caplog.set_level(logging.CRITICAL, logger="tally.kafka.requests")
    orders = Orders(
        seed=20170730,
        duration_s=share(20),
        gap_s=(0.1, 0.5),
        rate=200,
        with_airflow=False,
        with_spark=False,
        home=tmp_path / "home",
    )
    with capsys.disabled():
        report = run_campaign(orders, print)
    assert report.problems == []  # a kind of fault that was never played is one
    assert report.lines > 0
    assert sum(report.commits.values()) > 0
    assert report.looks > 0
