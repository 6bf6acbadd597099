"""Processes that are stopped between read and commit, and resumed after others have committed."""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tally.model import Batch
from tests.conftest import PROJECT
from tests.minute.test_commit import claimed, commit, planned, result
from tests.world import World

pytestmark = pytest.mark.stack


class Sleeper:
    """A worker that stops before its commit, and its parent process."""

    def __init__(self, batch: Batch, folder: Path) -> None:
        self._outcome = folder / "outcome"
        command = [sys.executable, "-m", "tests.minute.sleeper", str(batch.batch_id)]
        own = shlex.join([*command, str(self._outcome)])
        self.parent = subprocess.Popen(
            ["/bin/sh", "-c", f"{own} & echo $!; wait"],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.parent.stdout is not None
        self.process = psutil.Process(int(self.parent.stdout.readline()))
        while self.process.status() != psutil.STATUS_STOPPED:
            assert self.process.status() != psutil.STATUS_ZOMBIE, "it has ended before its commit"
            time.sleep(0.02)

    def wake(self) -> str:
        """Resume it; returns the outcome of its commit."""
        self.process.resume()
        self.process.wait()
        return self._outcome.read_text(encoding="utf-8")

    def end(self) -> None:
        """End all of its processes."""
        with suppress(psutil.NoSuchProcess):
            self.process.kill()
        self.parent.kill()
        self.parent.communicate()


@pytest.fixture
def batch(world: World) -> Batch:
    """A planned batch."""
    return planned(world)


@pytest.fixture
def sleeper(batch: Batch, tmp_path: Path) -> Iterator[Sleeper]:
    """A worker that has claimed and read the batch, and sleeps."""
    sleeper = Sleeper(batch, tmp_path)
    yield sleeper
    sleeper.end()


@pytest.mark.parametrize("successors", [0, 1, 2, 12])
def test_a_stopped_worker_changes_nothing_when_it_wakes_after_its_successors(
    world: World, batch: Batch, sleeper: Sleeper, successors: int
) -> None:
    """Another attempt owns its batch, or it was committed and later batches too."""
    newer = claimed(world, batch)
    for _ in range(successors):
        assert commit(world, newer, result(newer))
        newer = claimed(world, planned(world))
    before = world.counts(), world.offsets()
    assert sleeper.wake() == ("found it done" if successors else "fenced")
    assert (world.counts(), world.offsets()) == before
    assert commit(world, newer, result(newer))
    assert world.counts() == {"2017-07-30 14:09": 6 * (successors + 1)}
    assert world.audit().holds


@pytest.mark.parametrize("retry_is_first", [True, False], ids=["after its retry", "before it"])
def test_a_driver_that_outlives_its_killed_worker_counts_once_with_the_retry(
    world: World, batch: Batch, sleeper: Sleeper, retry_is_first: bool
) -> None:
    """SIGKILL ends only the worker; its driver runs on and finishes later."""
    sleeper.parent.send_signal(signal.SIGKILL)
    sleeper.parent.wait()
    assert sleeper.process.is_running()
    if retry_is_first:
        retry = claimed(world, batch)
        assert commit(world, retry, result(retry))
        assert sleeper.wake() == "found it done"
    else:
        assert sleeper.wake() == "committed"
        retry = claimed(world, batch)
        assert not commit(world, retry, result(retry))
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.offsets() == {0: (0, 3), 1: (0, 3)}
    assert world.audit().holds
