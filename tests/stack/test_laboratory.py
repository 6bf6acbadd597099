"""The laboratory on real servers: what is known to double does, and Tally does not."""

import subprocess
import sys

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.stack


def test_a_fault_between_counts_and_offsets_doubles_only_where_they_are_apart() -> None:
    """One batch of 600 lines, killed at the same point, in two ways to deliver."""
    asked = ["--methods", "batch", "at-least-once", "--faults", "BEFORE_OFFSETS"]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.laboratory", *asked],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line.strip("| ").split(" | ")[1] for line in ran.stdout.splitlines() if "| " in line]
    assert rows[-2:] == ["exact", "600 doubled"]
