"""Writing the files with which Airflow finds Tally: DAGs, plugin and Spark entry point."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tally.errors import UsageError
from tally.packaged import JOB, packaged

FILES: Final = ("dags/tally_pipelines.py", "plugins/tally_plugin.py", JOB)
"""In a checkout they lie at its root, and in an installed package below ``files``."""


class FileState(StrEnum):
    """What became of a file."""

    WRITTEN = "written"
    """It was not there, or it was replaced."""
    UNCHANGED = "unchanged"
    """It was there already, with the same content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileView:
    """A file for Airflow."""

    path: str
    """Where it is."""
    state: FileState
    """Whether it was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AirflowFilesView:
    """The files that Airflow needs."""

    folder: str
    """The folder that holds them, and in which tally.toml is looked for."""
    files: tuple[FileView, ...]
    """The files."""


def write_airflow_files(folder: Path, *, replace: bool = False) -> AirflowFilesView:
    """Write DAG file, plugin and Spark entry point into a folder.

    Args:
        folder: Is created if it does not exist.
        replace: Whether files with another content are replaced.

    Raises:
        UsageError: A file with another content is there; nothing was written.
    """
    wanted = {folder / name: airflow_file(name).read_text(encoding="utf-8") for name in FILES}
    there = {path: path.read_text(encoding="utf-8") for path in wanted if path.exists()}
    changed = [str(path) for path, text in there.items() if text != wanted[path]]
    if changed and not replace:
        raise UsageError(
            f"{', '.join(changed)}: there already, with another content",
            next_step="look at the differences, then add --replace, or name another folder",
        )
    found = []
    for path, text in wanted.items():
        is_there = there.get(path) == text
        if not is_there:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        state = FileState.UNCHANGED if is_there else FileState.WRITTEN
        found.append(FileView(path=str(path), state=state))
    return AirflowFilesView(folder=str(folder), files=tuple(found))


def airflow_file(name: str) -> Path:
    """One of :data:`FILES`, as it travels with the package."""
    return packaged(name, below="files")
