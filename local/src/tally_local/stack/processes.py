"""Processes that outlive the command that started them, and can always be found again.

Each start has a random token. It is stored before the process is started, and the process and all
its descendants have it in their environment. So ``stop`` finds exactly what was started, whichever
process was killed at any moment: by the token, or, if a program overwrites its environment, by id,
creation time and session. An id alone is not enough, as the system reuses it.
"""

import atexit
import os
import secrets
import subprocess
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import psutil

from tally.errors import StackError
from tally_local.stack.home import Layout, read_json, write_private_json

TOKEN_VARIABLE = "TALLY_STACK_TOKEN"  # noqa: S105 - the name of a variable
POLL_S = 0.05
KILL_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 20

# Handles of the processes that this process started, so that they are reaped when they end.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What to start."""

    argv: tuple[str, ...]
    """Program and arguments; never a password."""
    cwd: Path
    """Where it runs."""
    env: Mapping[str, str]
    """Its whole environment, less the token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What is stored of one start."""

    token: str
    """In the environment of the process and of its children."""
    started_at: float
    """The time of the start, in seconds since the epoch."""
    pid: int | None = None
    """The process id; None until the process is started."""
    create_time: float | None = None
    """The process's creation time; with the id it identifies one process for ever."""


@dataclass(frozen=True, slots=True)
class Processes:
    """The started processes of one stack."""

    layout: Layout
    """The stack's folders, with those of records and logs."""

    def log(self, name: str) -> Path:
        """The log of the last start of ``name``."""
        return self.layout.logs / f"{name}.log"

    def record(self, name: str) -> Record | None:
        """The record of ``name``; None if it was never started or was stopped."""
        known = read_json(self._path(name))
        names = {item.name for item in fields(Record)}
        return Record(**{key: known[key] for key in names & known.keys()}) if known else None

    def start(self, name: str, command: Command) -> Record:
        """Start ``command`` in a session of its own and store the record; does not wait."""
        log = self.log(name)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        record = Record(token=secrets.token_hex(16), started_at=time.time())
        write_private_json(self._path(name), asdict(record))
        try:
            process = self.spawn(command, token=record.token, log=log)
        except OSError as error:
            self._path(name).unlink(missing_ok=True)
            raise StackError(
                f"cannot start {name}: {error}", next_step=f"check {command.argv[0]}"
            ) from error
        record = replace(record, pid=process.pid, create_time=_create_time(process.pid))
        write_private_json(self._path(name), asdict(record))
        return record

    def spawn(self, command: Command, *, token: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a command; its record is stored.

        Raises:
            OSError: It cannot be started.
        """
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as output:
            process = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env={**command.env, TOKEN_VARIABLE: token},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                umask=0o077,
            )
        _children[process.pid] = process
        return process

    def main_process(self, name: str) -> psutil.Process | None:
        """The process that was started as ``name``, if it still runs."""
        record = self.record(name)
        if record is None:
            return None
        if record.pid is None:  # the starting process was killed before it stored the id
            return next(filter(_is_session_leader, self.members(name)), None)
        _reap()
        process = _process(record.pid)
        return process if process and _is_ours(process, record) else None

    def members(self, name: str) -> list[psutil.Process]:
        """Every running process of ``name``, whatever its parent is now."""
        record = self.record(name)
        if record is None:
            return []
        # Not process_iter: it caches processes, and can take a reused id for the old process once.
        everybody = (_process(pid) for pid in psutil.pids())
        return [process for process in everybody if process and _is_ours(process, record)]

    def stop(self, name: str, *, timeout_s: float) -> bool:
        """End ``name`` and everything it started: SIGTERM, and SIGKILL after ``timeout_s``.

        Returns:
            Whether a process was still running.

        Raises:
            StackError: A process survives even SIGKILL; the record stays.
        """
        members = self.members(name)
        for member in members:
            with suppress(psutil.NoSuchProcess):
                member.terminate()
        _wait(members, timeout_s=timeout_s)
        self.kill(name)
        _reap()
        self._path(name).unlink(missing_ok=True)
        return bool(members)

    def kill(self, name: str) -> None:
        """SIGKILL ``name`` and everything it started; the record stays, as after a crash."""
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while members := self.members(name):  # again, for processes that were started meanwhile
            for member in members:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            _wait(members, timeout_s=1.0)
            if time.monotonic() > deadline:
                raise StackError(
                    f"{name} survives SIGKILL: process {members[0].pid}",
                    next_step="look at that process; a hung disk is the usual cause",
                )

    def log_tail(self, name: str) -> list[str]:
        """The last lines of the log of ``name``."""
        try:
            with self.log(name).open(encoding="utf-8", errors="replace") as stream:
                return [line.rstrip("\n") for line in deque(stream, LOG_TAIL_LINES)]
        except FileNotFoundError:
            return []

    def _path(self, name: str) -> Path:
        return self.layout.run / f"{name}.json"


def _reap() -> None:
    """Forget children that have ended, including those whose record a later start has replaced."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            _children.pop(pid, None)  # another thread may have been here


@atexit.register
def _leave_running() -> None:
    """Servers outlive the process that started them; Popen would warn of each at its end."""
    _reap()
    for child in _children.values():
        child.returncode = 0


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _create_time(pid: int) -> float | None:
    process = _process(pid)
    return process.create_time() if process else None


def _is_ours(process: psutil.Process, record: Record) -> bool:
    try:
        if not _is_alive(process):
            return False
        if process.environ().get(TOKEN_VARIABLE) == record.token:
            return True
        # Creation times are counted in hundredths of a second, so they need a second witness.
        same = process.pid == record.pid and process.create_time() == record.create_time
        return same and _is_session_leader(process)
    except psutil.Error:  # it has just ended, or is another user's
        return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1:
            return False  # a thread that is left may still hold its files and their locks
        return process.is_running()
    except psutil.NoSuchProcess:
        return False


def _is_session_leader(process: psutil.Process) -> bool:
    try:
        return os.getsid(process.pid) == process.pid
    except OSError:
        return False


def _wait(processes: list[psutil.Process], *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        alive = any(_is_alive(process) for process in processes)
        _reap()
        if not alive:
            return
        time.sleep(POLL_S)
