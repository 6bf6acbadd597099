"""The Python packages of executors on other machines, as one archive beside the connector's jars.

It holds Tally and what its tasks import, as they are installed here: for executors with the same
Python, system and processor, which need nothing else. PySpark itself is a part of their Spark.
"""

import os
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

import tally
from tally.spark.jars import Announce
from tally.spark.session import PYTHON_ARCHIVE

_NEEDED: Final = ("kafka-tally", "pandas", "pyarrow")
_TITLE: Final = "Python packages for executors elsewhere"
# Quick: most of it is libraries, which the best compression makes a tenth smaller.
_COMPRESSION: Final = 1


def build_python_archive(folder: Path, announce: Announce) -> None:
    """Write the archive into a folder, and delete those of other versions once it is whole.

    Args:
        folder: ``spark.jars_dir``.
        announce: Called with each line of progress.
    """
    announce(f"{_TITLE}: archived")
    target = folder / PYTHON_ARCHIVE.format(tally.__version__)
    made = target.with_suffix(f".{os.getpid()}")
    try:
        with tarfile.open(made, "w:gz", compresslevel=_COMPRESSION) as archive:
            for path, name in _files():
                archive.add(path, name, recursive=False)
        made.replace(target)
        for other in folder.glob(PYTHON_ARCHIVE.format("*")):
            if other != target:
                other.unlink()
    finally:
        made.unlink(missing_ok=True)


def _files() -> Iterator[tuple[Path, str]]:
    """Each file, and its path in the archive."""
    package = Path(tally.__file__).parent
    for path in package.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path, str(Path("tally") / path.relative_to(package))
    for found in _closure():
        for file in found.files or ():
            is_ours = file.parts[0] == "tally" or file.suffix == ".pth"
            # Programs lie outside of the folder of packages.
            if not is_ours and ".." not in file.parts and "__pycache__" not in file.parts:
                yield Path(str(found.locate_file(file))), str(file)


def _closure() -> Iterator[Distribution]:
    """The distributions that Tally's tasks need, each once."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    todo = [Requirement(name) for name in _NEEDED]
    while todo:
        wanted = todo.pop()
        try:
            one = distribution(wanted.name)
        except PackageNotFoundError:
            continue  # for another system
        found[one.name] = one
        for extra in {"", *wanted.extras}:
            if (one.name, extra) in seen:
                continue
            seen.add((one.name, extra))
            needed = map(Requirement, one.requires or ())
            todo += [n for n in needed if n.marker is None or n.marker.evaluate({"extra": extra})]
    yield from found.values()
