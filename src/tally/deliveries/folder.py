"""A folder of any file system that PyArrow knows, in which files appear whole."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
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
        yield Folder(fs.SubTreeFileSystem(root, system))
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

    files: Any
    """The part of the file system that it is, as PyArrow has it."""

    @property
    def is_local(self) -> bool:
        """Whether files are seen while they are written, and must be brought to the disk."""
        return isinstance(self.files.base_fs, fs.LocalFileSystem)

    def open(self, path: str) -> Any:
        """Open a file for reading; FileNotFoundError when there is none."""
        return self.files.open_input_file(path)

    def read(self, path: str) -> bytes | None:
        """All of a file; None when there is none."""
        try:
            with self.open(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        return bool(self.files.get_file_info(path).type == fs.FileType.File)

    def create(self, path: str) -> Any:
        """A stream into a new file; elsewhere than on a local disk none is seen before its end."""
        self.files.create_dir(path.rpartition("/")[0], recursive=True)
        return self.files.open_output_stream(path)

    def put(self, path: str, content: bytes) -> None:
        """Write a file whole, or replace it at once."""
        begun = f"{OPEN}/{uuid4().hex}.part" if self.is_local else path
        with self.create(begun) as file:
            file.write(content)
        self.finish(begun, path)

    def finish(self, begun: str, path: str) -> None:
        """Give a written file its name; on a local disk it survives a power cut from then on."""
        if self.is_local:
            root, folder = Path(self.files.base_path), Path(path).parent
            self.files.create_dir(str(folder), recursive=True)
            _sync(root / begun)
            self.files.move(begun, path)
            for changed in (folder, *folder.parents):
                _sync(root / changed)

    def list(self, folder: str) -> list[str]:
        """All files below a folder of this one."""
        selector = fs.FileSelector(folder, allow_not_found=True, recursive=True)
        return [i.path for i in self.files.get_file_info(selector) if i.type == fs.FileType.File]

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        with suppress(FileNotFoundError):
            self.files.delete_file(path)


def _sync(path: Path) -> None:
    """Bring a local file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
