"""The servers of a test session: one Kafka and one MySQL for all workers, on a RAM disk.

The first process of a session, which starts the workers, chooses the folder and stops the servers
at the end; whichever worker needs them first starts them. Tests that stop, kill or reconfigure a
server have a pair of their own, which is durable as in production.
"""

import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from tally_local.stack.server import Part
from tally_local.stack.stack import Stack

PROJECT = Path(__file__).parents[1]
TALLY = Path(sys.executable).with_name("tally")
"""The installed program."""
HOME_VARIABLE = "TALLY_TEST_HOME"
"""Where the servers of the session are; set by whoever stops them."""

SERVERS = (Part.KAFKA, Part.MYSQL)
RAM_DISK = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
RAM_BYTES_MIN = 6 * 2**30
"""Free bytes of the RAM disk and of the memory, without which the disk is used."""

LAST_FAILURE = PROJECT / ".tally" / "last-failure"
"""Logs and pictures of the latest session that failed."""

NOT_DURABLE = ("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF")
"""For data that nobody needs after a crash of the server."""


@contextmanager
def home_of_session() -> Iterator[Path | None]:
    """Choose a home for the servers of this session and its workers, and stop them at the end.

    None where the home was chosen by another program, which also stops the servers.
    """
    if HOME_VARIABLE in os.environ:
        yield None
        return
    with free_home() as home:
        os.environ[HOME_VARIABLE] = str(home)
        os.environ["TMPDIR"] = str(home / "tmp")
        tempfile.tempdir = None  # it was computed before
        try:
            yield home
        finally:
            del os.environ[HOME_VARIABLE], os.environ["TMPDIR"]
            tempfile.tempdir = None


@contextmanager
def free_home() -> Iterator[Path]:
    """An empty home that no other test session of this checkout uses; its servers are stopped."""
    for number in itertools.count():
        folder = PROJECT / ".tally" / f"test-{number}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / "session.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        home = folder / "home"
        try:
            _clear(home)  # what a killed session has left
            if _has_ram_disk():
                home.symlink_to(tempfile.mkdtemp(prefix="tally-test-", dir=RAM_DISK))
            else:
                home.mkdir(mode=0o700)
            (home / "tmp").mkdir()
            yield home.resolve()
        finally:
            _clear(home)
            lock.release()
        return


def keep_what_failed(home: Path) -> None:
    """Copy the logs and pictures of a home to where they stay."""
    shutil.rmtree(LAST_FAILURE, ignore_errors=True)
    for path in [path for kind in ("*.log", "*.png") for path in home.rglob(kind)]:
        if "data" not in path.parts:  # of Kafka and MySQL
            kept = LAST_FAILURE / path.relative_to(home)
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.copyfile(path, kept)


def _has_ram_disk() -> bool:
    """Whether there is one for data and programs, with room in it and in the memory behind it."""
    if not os.access(RAM_DISK, os.W_OK) or os.statvfs(RAM_DISK).f_flag & os.ST_NOEXEC:
        return False
    free = min(shutil.disk_usage(RAM_DISK).free, psutil.virtual_memory().available)
    return free > RAM_BYTES_MIN


def shared_stack() -> Stack:
    """The session's servers, started by the first worker that asks."""
    home = Path(os.environ[HOME_VARIABLE])
    stack = Stack(project=PROJECT, home=home, announce=print, mysql_options=NOT_DURABLE)
    stack.up(SERVERS)
    return stack


@contextmanager
def own_servers(*mysql_options: str, parts: Sequence[Part] = SERVERS) -> Iterator[Stack]:
    """Servers of one worker's own, which are killed and restarted; they are durable."""
    home = tempfile.mkdtemp(prefix="own-", dir=os.environ[HOME_VARIABLE])
    stack = Stack(project=PROJECT, home=Path(home), announce=print, mysql_options=mysql_options)
    stack.up(parts)
    try:
        yield stack
    finally:
        stack.down()
        shutil.rmtree(home, ignore_errors=True)


def _clear(home: Path) -> None:
    """Stop the servers of a home and delete it, and the folder that it leads to."""
    if not home.exists():
        home.unlink(missing_ok=True)  # a link that leads nowhere after a restart of the machine
        return
    real = home.resolve()
    # Also the stacks of single tests, wherever they are in it.
    for folder in {record.parents[1] for record in real.rglob("run/*.json")}:
        Stack(project=PROJECT, home=folder).down()
    shutil.rmtree(real, ignore_errors=True)
    if home.is_symlink():
        home.unlink()


if __name__ == "__main__":  # for `make clean`
    for checkout in (PROJECT, PROJECT / "mutants"):
        for left in (checkout / ".tally").glob("test-*/home"):
            _clear(left)
