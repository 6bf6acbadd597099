"""The laboratory's own parts: its checker and its faults, without a server."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.laboratory.faults import Fault
from benchmarks.laboratory.lines import LINES, Verdict, judge, minutes
from tests.conftest import PROJECT


def test_what_is_missing_is_lost_and_what_is_more_is_doubled() -> None:
    """Each line has a minute of its own; a minute of no line is an error of the laboratory."""
    assert len(set(minutes())) == LINES
    counts = dict.fromkeys(minutes(), 1)
    assert str(judge(counts)) == "exact"
    first, second, third, *_ = minutes()
    del counts[second]
    counts |= {first: 4, third: 0}
    assert judge(counts) == Verdict(lost=2, doubled=3)
    assert str(judge(counts)) == "2 lost, 3 doubled"
    with pytest.raises(ValueError, match="1999-12-31"):
        judge({"1999-12-31 00:00:00": 1})


STRIKE = """
import os, sys
from benchmarks.laboratory.faults import Fault, begin_batch, begin_driver, point
for number, batches, drivers in [map(int, run.split()) for run in sys.argv[2:]]:
    os.environ["LAB_FAULT"] = list(Fault)[number]
    os.environ["LAB_FOLDER"] = folder = f"{sys.argv[1]}/{number} {batches}"
    os.mkdir(folder)
    for _ in range(drivers):
        if not (driver := os.fork()):
            begin_driver()
            for _ in range(batches):
                begin_batch()
                point(Fault.BEFORE_WRITE)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1]), end=" ")
    print(os.path.exists(f"{folder}/struck"))
"""


def test_a_fault_strikes_once_from_the_second_batch_on(tmp_path: Path) -> None:
    """Only at its own point; processes that are started again count the batches on."""
    faults = list(Fault)
    runs = [(Fault.BEFORE_WRITE, "1 3"), (Fault.BEFORE_WRITE, "2 2"), (Fault.BEFORE_OFFSETS, "3 1")]
    asked = [f"{faults.index(fault)} {run}" for fault, run in [*runs, (Fault.NONE, "3 1")]]
    command = [sys.executable, "-c", STRIKE, str(tmp_path), *asked]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["0 -9 0 True", "-9 0 True", "0 False", "0 False"]
