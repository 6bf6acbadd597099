"""A folder for what Spark writes beside its work, so that a killed JVM leaves nothing for ever."""

import atexit
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from tally.leftovers import new_folder
from tally.spark.driver_log import JAVA_OPTIONS

KIND: Final = "spark"
LOCAL_DIR: Final = "spark.local.dir"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is deleted at the end; after a SIGKILL the next call deletes it.

    Raises:
        ConfigError: The user's temporary folder is not the user's alone.
        UnwritableError: It is full, or cannot be written.
    """
    path = new_folder(KIND)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@cache
def folder_of_process() -> Path:
    """The folder of this process, as long as it lives: a JVM outlives its Spark session.

    Raises:
        ConfigError: As :func:`scratch_folder`.
    """
    path = new_folder(KIND)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def with_scratch(options: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Spark's configuration with its temporary files in a folder, unless it names another one.

    Args:
        options: Spark's configuration.
        folder: The folder.
    """
    java = options.get(JAVA_OPTIONS, "")
    if "java.io.tmpdir" not in java:
        java = f'{java} "-Djava.io.tmpdir={folder}"'.strip()
    return {LOCAL_DIR: str(folder), **options, JAVA_OPTIONS: java}
