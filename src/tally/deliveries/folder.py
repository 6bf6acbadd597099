"""A folder of any file system that PyArrow knows, in which files appear whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from tally.errors import FilesUnavailableError, UnwritableError

OPEN: Final = "_open"
"""Where files are on a local disk until they are whole."""


@contextmanager
def opened(url: str) -> Iterator["Folder"]:
    """The folder of a URL.

    Raises:
        FilesUnavailableError: The file system did not answer, or has no room.
        UnwritableError: It refuses this user.
    """
    try:
        system, root = fs.FileSystem.from_uri(url)
        yield Folder(system, root)
    except PermissionError as error:
        raise UnwritableError(
            f"{url}: {error}", next_step="let Tally's user read, write and delete there"
        ) from error
    except (OSError, pa.ArrowException) as error:
        raise FilesUnavailableError(
            f"{url}: {error}",
            next_step="correct files_url, or run it again once the file system answers",
        ) from error


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of some file system; the paths that its methods take are below it."""

    system: Any
    """The file system, as PyArrow has it."""
    root: str
    """The path of the folder there."""

    @property
    def is_local(self) -> bool:
        """Whether files are seen while they are written, and must be brought to the disk."""
        return isinstance(self.system, fs.LocalFileSystem)

    def path(self, below: str) -> str:
        """A path on the file system."""
        return f"{self.root}/{below}"

    def open(self, below: str) -> Any:
        """Open a file for reading; FileNotFoundError when there is none."""
        return self.system.open_input_file(self.path(below))

    def read(self, below: str) -> bytes | None:
        """All of a file; None when there is none."""
        try:
            with self.open(below) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def has(self, below: str) -> bool:
        """Whether a file is there."""
        return bool(self.system.get_file_info(self.path(below)).type == fs.FileType.File)

    def create(self, below: str) -> Any:
        """A stream into a new file; elsewhere than on a local disk none is seen before its end."""
        path = self.path(below)
        self.system.create_dir(path.rpartition("/")[0], recursive=True)
        return self.system.open_output_stream(path)

    def put(self, below: str, content: bytes) -> None:
        """Write a file whole, or replace it at once."""
        begun = f"{OPEN}/{uuid4().hex}.part" if self.is_local else below
        with self.create(begun) as file:
            file.write(content)
        self.finish(begun, below)

    def finish(self, begun: str, below: str) -> None:
        """Give a written file its name; on a local disk it survives a power cut from then on."""
        if self.is_local:
            path, folder = self.path(below), self.path(below).rpartition("/")[0]
            self.system.create_dir(folder, recursive=True)
            _sync(self.path(begun))
            self.system.move(self.path(begun), path)
            while len(folder) >= len(self.root):
                _sync(folder)
                folder = folder.rpartition("/")[0]

    def list(self, below: str) -> list[str]:
        """All files below a folder of this one."""
        selector = fs.FileSelector(self.path(below), allow_not_found=True, recursive=True)
        infos = self.system.get_file_info(selector)
        return [i.path[len(self.root) + 1 :] for i in infos if i.type == fs.FileType.File]

    def delete(self, below: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError):
            self.system.delete_file(self.path(below))


def _sync(path: str) -> None:
    """Bring a local file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
