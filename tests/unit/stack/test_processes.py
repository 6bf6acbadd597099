"""Started processes are found again, and only they."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import wait_until

from tally.errors import StackError
from tally_local.stack.home import Layout, read_json, write_private_json
from tally_local.stack.processes import LOG_TAIL_LINES, Command, Processes

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(Layout(tmp_path, tmp_path))
    yield processes
    processes.stop("part", timeout_s=1)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours to end."""
    with subprocess.Popen([sys.executable, "-c", SLEEP]) as process:
        yield process
        process.kill()


def python(code: str) -> Command:
    return Command(argv=(sys.executable, "-c", code), cwd=Path.cwd(), env=dict(os.environ))


def wait_for_log(processes: Processes, text: str) -> list[str]:
    wait_until(lambda: text in "\n".join(processes.log_tail("part")))
    return list(processes.log_tail("part"))


def change_record(folder: Path, **values: Any) -> None:
    """As another front has left it."""
    path = folder / "run" / "part.json"
    write_private_json(path, {**read_json(path), **values})


def test_a_process_is_found_by_another_front_whatever_the_record_lacks(
    processes: Processes, tmp_path: Path
) -> None:
    """One of another version, or killed before it wrote the id: the token was written before."""
    for changes in ({}, {"invented_later": 1}, {"pid": None, "create_time": None}):
        started = processes.start("part", python(SLEEP))
        change_record(tmp_path, **changes)
        other = Processes(Layout(tmp_path, tmp_path))
        # Between fork and exec it has not the token yet.
        wait_until(lambda other=other: other.main_process("part"))  # type: ignore[misc]
        found = other.main_process("part")
        assert found is not None
        assert found.pid == started.pid
        assert other.stop("part", timeout_s=5)
        assert not found.is_running()
        assert processes.main_process("part") is None
        assert processes.record("part") is None


def test_a_reused_process_id_is_never_killed(
    processes: Processes, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    """The id in the record now belongs to another process."""
    processes.start("part", python(SLEEP))
    processes.kill("part")
    change_record(tmp_path, pid=stranger.pid)
    assert processes.main_process("part") is None
    assert not processes.stop("part", timeout_s=1)
    assert stranger.poll() is None


STARTED_AND_LEFT = """
import os, sys
from pathlib import Path
from tally_local.stack.home import Layout
from tally_local.stack.processes import Command, Processes
processes = Processes(Layout(Path(), Path()))
code = "import time; time.sleep(600)"
command = Command(argv=(sys.executable, "-c", code), cwd=Path(), env=dict(os.environ))
processes.start("part", command)
"""


def test_a_process_outlives_who_started_it_without_a_warning(
    processes: Processes, tmp_path: Path
) -> None:
    """As the servers of a test session outlive the worker that needed them first."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", STARTED_AND_LEFT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    wait_until(lambda: processes.main_process("part"))


def test_the_record_is_there_before_the_process(processes: Processes, tmp_path: Path) -> None:
    """A front that is killed in between leaves a record, not an orphan."""
    seen = []

    class Looking(Processes):
        def spawn(self, command: Command, *, token: str, log: Path) -> subprocess.Popen[bytes]:
            record = processes.record("part")
            seen.append(record is not None and record.token == token)
            return super().spawn(command, token=token, log=log)

    Looking(Layout(tmp_path, tmp_path)).start("part", python(SLEEP))
    assert seen == [True]


def test_what_a_part_started_ends_with_it(processes: Processes) -> None:
    """Children in sessions of their own, orphaned ones, and ones that ignore SIGTERM."""
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        " print('stubborn', flush=True); time.sleep(600)"
    )
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {stubborn!r}], start_new_session=True)\n"
        "print('child', child.pid, flush=True)\n"
    )
    processes.start("part", python(parent))
    lines = wait_for_log(processes, "stubborn")
    child = next(int(line.split()[1]) for line in lines if line.startswith("child"))
    assert processes.stop("part", timeout_s=0.5)
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(child).status() == psutil.STATUS_ZOMBIE  # nobody reaps in a container


def test_a_crash_is_seen_and_its_log_is_kept(processes: Processes) -> None:
    """The record stays until the part is stopped, and so does the log of the previous start."""
    processes.start("part", python("print('one')"))
    wait_for_log(processes, "one")
    processes.start("part", python("print('x\\n' * 50 + 'two'); raise SystemExit(3)"))
    lines = wait_for_log(processes, "two")
    assert len(lines) == LOG_TAIL_LINES
    wait_until(lambda: processes.main_process("part") is None)
    assert processes.record("part") is not None
    assert processes.log("part").with_suffix(".log.1").read_text() == "one\n"
    assert processes.log("part").stat().st_mode & 0o777 == 0o600


def test_a_program_that_is_not_there_is_an_error(processes: Processes, tmp_path: Path) -> None:
    """Nothing is remembered of it."""
    with pytest.raises(StackError, match="cannot start part"):
        processes.start("part", Command(argv=("/no/such",), cwd=tmp_path, env={}))
    assert processes.record("part") is None
