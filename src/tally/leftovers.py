"""Files and folders that belong to a process, and what a killed process has left of them.

Each lies in a folder of the user's own. Its name identifies its process: process id, start time,
and the namespace of the id, as the system reuses an id alone. The process that makes the next one
deletes those of processes that have ended.
"""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tally.errors import ConfigError, UnwritableError

FOLDER: Final = "tally"
_OWNER: Final = r"-(?P<namespace>\d+)-(?P<pid>\d+)-(?P<start>\d+)-\w+"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def new_folder(kind: str) -> Path:
    """A folder for this process, mode 0700, after what ended processes have left is deleted.

    Args:
        kind: What it is for, in lower-case letters: the first part of its name.

    Raises:
        ConfigError: The user's folder is not the user's alone.
        UnwritableError: Nothing can be written there.
    """
    with _writing():
        parent = own_folder()
        sweep(parent, kind)
        return Path(tempfile.mkdtemp(dir=parent, prefix=owner_prefix(kind)))


def new_file(kind: str, suffix: str, parent: Path | None) -> tuple[int, Path]:
    """A file for this process, mode 0600, as :func:`new_folder`; its descriptor and path.

    Args:
        kind: As there.
        suffix: How its name ends.
        parent: See :func:`own_folder`.
    """
    with _writing():
        folder = own_folder(parent)
        sweep(folder, kind, suffix)
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=owner_prefix(kind), suffix=suffix)
        return descriptor, Path(name)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise UnwritableError(
            f"a temporary file or folder cannot be made: {where}{error.strerror}",
            next_step="make room there, or set TMPDIR to a folder that can be written",
        ) from None


def own_folder(parent: Path | None = None) -> Path:
    """The user's folder, created if it is missing: mode 0700, owned by this user.

    Args:
        parent: Of a folder ``tally``; when None it is ``tally-<uid>`` in the temporary folder.

    Raises:
        ConfigError: The path is not a folder, or not this user's alone.
        OSError: It cannot be made.
    """
    temporary = Path(tempfile.gettempdir()) / f"{FOLDER}-{os.geteuid()}"
    folder = temporary if parent is None else parent / FOLDER
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not is_private(folder):
        raise ConfigError(
            f"{folder} is to hold temporary files and secrets, but it is not a folder that only "
            "this user can access",
            next_step=f"see whose it is: ls -ld '{folder}'; then delete it, or, if it is another "
            "user's, set TMPDIR to a folder of your own",
        )
    return folder


def is_private(folder: Path) -> bool:
    """Whether it is a folder, and no link, that only this user can access."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
    )


def owner_prefix(kind: str) -> str:
    """How the name of a file or folder of this process begins.

    Args:
        kind: Lower-case letters; see :func:`sweep`.
    """
    pid = os.getpid()
    return f"{kind}-{_pid_namespace()}-{pid}-{_start_of(pid)}-"


def sweep(folder: Path, kind: str, suffix: str = "") -> None:
    """Delete what processes have left that have ended; what is of running ones, or others', stays.

    Args:
        folder: Where to look.
        kind: Of the files or folders.
        suffix: How their names end.
    """
    pattern = re.compile(re.escape(kind) + _OWNER + re.escape(suffix))
    namespace = _pid_namespace()
    for path in folder.iterdir():
        name = pattern.fullmatch(path.name)
        # Another container's processes cannot be seen from here.
        if name is None or int(name["namespace"]) != namespace:
            continue
        if _start_of(int(name["pid"])) != int(name["start"]):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)  # its JVM may be deleting it as well
            else:
                path.unlink(missing_ok=True)


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_of(pid: int) -> int | None:
    """The start time of a process of this user; None when there is no such process.

    In ticks since the machine's boot: a wall-clock time would change when the clock is set.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or another user's
        return None
    # The program's name, in parentheses, may hold anything; the start is the 20th field after it.
    return int(text.rpartition(")")[2].split()[19])
