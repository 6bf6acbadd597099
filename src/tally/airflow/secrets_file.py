"""Passing secrets to the driver: a file that only its owner can read; its path is passed.

The files are in a folder of their own. A task that is killed leaves its file behind; the next task
deletes it. A file's name identifies its process: process id, start time, and the namespace of the
id, as the system reuses an id alone.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import tomli_w
from pydantic import BaseModel, SecretStr

from tally.config.settings import Settings
from tally.errors import ConfigError

FOLDER: Final = "tally"
_SECTIONS: Final = ("kafka", "mysql", "spark")
_NAME: Final = re.compile(r"secrets-(?P<namespace>\d+)-(?P<pid>\d+)-(?P<start>\d+)-\w+\.toml")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def secrets_file(settings: Settings) -> Iterator[Path]:
    """A file with the settings of the servers, secrets included, for ``TALLY_SECRETS_FILE``.

    Mode 0600; deleted at the end of the block. After a SIGKILL the next call deletes it.

    Raises:
        ConfigError: The folder for it is another user's, or others may read it.
    """
    folder = runtime_folder()
    sweep(folder)
    pid = os.getpid()
    owner = f"secrets-{_pid_namespace()}-{pid}-{_start_of(pid)}-"
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=owner, suffix=".toml")  # mode 0600
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            tomli_w.dump({key: _plain(getattr(settings, key)) for key in _SECTIONS}, stream)
        yield path
    finally:
        path.unlink(missing_ok=True)


def runtime_folder() -> Path:
    """The folder of the files, created if it is missing: mode 0700, owned by this user.

    ``$XDG_RUNTIME_DIR/tally``, or ``tally-<uid>`` in the temporary folder where that is not set or
    not this user's.

    Raises:
        ConfigError: The path is not a folder, or not this user's alone.
    """
    folder = _runtime_path()
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if not _is_private(folder):
        raise ConfigError(
            f"{folder} is to hold secrets, but it is not a folder that only this user can access",
            next_step=f"see who made it: ls -ld '{folder}'; then delete it",
        )
    return folder


def sweep(folder: Path) -> None:
    """Delete the files whose process has ended; files of running processes and others' stay."""
    namespace = _pid_namespace()
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        # Another container's processes cannot be seen from here.
        if name is None or int(name["namespace"]) != namespace:
            continue
        if _start_of(int(name["pid"])) != int(name["start"]):
            path.unlink(missing_ok=True)


def _runtime_path() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_absolute() and _is_private(Path(given)):
        return Path(given) / FOLDER
    return Path(tempfile.gettempdir()) / f"{FOLDER}-{os.geteuid()}"


def _is_private(folder: Path) -> bool:
    """Whether it is a folder, and no link, that only this user can access."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
    )


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


def _plain(section: BaseModel) -> dict[str, Any]:
    """The section's values with the secrets in the clear; TOML has no null, so None is left out."""
    return {key: _bare(value) for key, value in section if value is not None}


def _bare(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value
