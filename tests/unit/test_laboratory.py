"""The laboratory's own parts: its checker, its faults, its table; without a server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.laboratory.__main__ import table_of
from benchmarks.laboratory.faults import OF_TASKS, Fault
from benchmarks.laboratory.lines import LINES, Verdict, judge, minutes
from benchmarks.laboratory.methods import METHODS
from tests.conftest import PROJECT


def test_each_line_has_a_minute_of_its_own() -> None:
    """So a count says what became of a line."""
    assert len(set(minutes())) == LINES


def test_what_is_missing_is_lost_and_what_is_more_is_doubled() -> None:
    """Both are told, and a minute of no line is an error of the laboratory."""
    counts = dict.fromkeys(minutes(), 1)
    assert str(judge(counts)) == "exact"
    first, second, third, *_ = minutes()
    counts[first] = 4
    del counts[second]
    counts[third] = 0
    assert judge(counts) == Verdict(lost=2, doubled=3)
    assert str(judge(counts)) == "2 lost, 3 doubled"
    with pytest.raises(ValueError, match="1999-12-31"):
        judge({"1999-12-31 00:00:00": 1})


STRIKE = """
from benchmarks.laboratory.faults import Fault, begin_batch, begin_driver, point
begin_driver()
for _ in range({batches}):
    begin_batch()
    point(Fault.BEFORE_WRITE)
"""


@pytest.mark.parametrize(
    ("fault", "batches", "codes"),
    [
        (Fault.BEFORE_WRITE, 1, [0, -9, 0]),
        (Fault.BEFORE_WRITE, 2, [-9, 0]),
        (Fault.BEFORE_OFFSETS, 3, [0]),
        (Fault.NONE, 3, [0]),
    ],
)
def test_a_fault_strikes_once_from_the_second_batch_on(
    fault: Fault, batches: int, codes: list[int], tmp_path: Path
) -> None:
    """Only at its own point; processes that are started again count the batches on."""
    environment = {**os.environ, "LAB_FAULT": fault.value, "LAB_FOLDER": str(tmp_path)}
    for code in codes:
        ended = subprocess.run(
            [sys.executable, "-c", STRIKE.format(batches=batches)],
            env=environment,
            cwd=PROJECT,
            check=False,
        )
        assert ended.returncode == code
    assert (tmp_path / "struck").exists() == (-9 in codes)


def test_the_table_has_a_place_for_each_fault() -> None:
    """A dash where a method cannot meet it."""
    exact = Verdict(0, 0)
    found = {"batch": dict.fromkeys(METHODS["batch"].faults, exact)}
    table = table_of(found, list(Fault), {"batch": LINES / 100})
    assert table.headers == ["method", *Fault, "seconds", "lines/s"]
    (row,) = table.rows
    assert [cell == "-" for cell in row[1:-2]] == [fault in OF_TASKS for fault in Fault]
    assert row[-2:] == ["24.0", "100"]
    assert table_of(found, list(Fault), {}).headers[-1] == list(Fault)[-1]
