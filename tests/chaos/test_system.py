"""What the campaign reports of processes: survivors that count, and growing memory."""

import os
import subprocess
import sys
from pathlib import Path

from tests.chaos.campaign import counting, quarters
from tests.chaos.system import Setup, System


def test_a_job_that_outlives_its_parent_is_seen(tmp_path: Path) -> None:
    """It is found by its configuration, whatever its parent is."""
    system = System(Setup(home=tmp_path / "home", with_airflow=False), print)
    job = "jobs/count_errors.py"
    orphan = subprocess.Popen(
        ["python", "-c", "input()", job],
        executable=sys.executable,
        env={**os.environ, "TALLY_CONFIG": str(system.config)},
        stdin=subprocess.PIPE,
    )
    try:
        assert counting(system) == [f"python -c input() {job}"]
    finally:
        orphan.communicate()
    assert counting(system) == []


def test_the_largest_process_of_each_quarter_is_told() -> None:
    """By time, so that a role that was absent for a while is compared with itself."""
    samples = [(100.0, 5.0), (110.0, 7.0), (111.0, 6.0), (160.0, 9.0), (180.0, 1.0)]
    assert quarters(samples) == [7.0, 0.0, 0.0, 9.0]
