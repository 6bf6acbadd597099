"""The JVM of Spark on this machine: which Java, its options, its log and its temporary files.

Kafka and Ivy run on the same Java. Needs no package but Tally: the set-up asks for Java first.
"""

import atexit
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from tally.errors import StackError
from tally.leftovers import new_folder

OLDEST: Final = 17
JAVA_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}
"""Java encodes file names by the locale: in the C locale it finds no folder with an umlaut."""
LOOPBACK: Final = "127.0.0.1"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOCAL_DIR: Final = "spark.local.dir"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")

# Flags of the driver's JVM for a small batch, which ends before an optimising compiler or a
# parallel collector is worth its start (docs/performance.md has the measurement).
QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_START_OFFSETS_MAX: Final = 1_000_000

# Reading makes many short-lived objects: this collector, with much room for them, takes less time
# than Java's default one (docs/performance.md has the measurement).
THROUGHPUT: Final = "-XX:+UseParallelGC -XX:NewRatio=1"
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC\b")
_OF_COLLECTOR: Final = re.compile(rf"\s*(?:{_COLLECTOR.pattern}|-XX:NewRatio=\d+)")
_JAVA_VARIABLES: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")

# An archive of classes of another version of Java, or for another class path, is nothing to warn
# about; a damaged one must not end the JVM.
SILENT_ARCHIVE: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"

# Spark's launcher asks for a module of Java that is not final yet, and Java warns about it.
_INCUBATOR: Final = b"WARNING: Using incubator modules: jdk.incubator.vector"

_NEXT_STEP: Final = (
    f"install Java {OLDEST} or newer (Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless) or point JAVA_HOME at one"
)


def java() -> str:
    """The path of a Java that is new enough: JAVA_HOME's if that is set, else the one on PATH.

    Raises:
        StackError: There is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if program is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise StackError(f"no java {where}", next_step=_NEXT_STEP)
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise StackError(f"cannot run {program}: {error}", next_step=_NEXT_STEP) from error
    version = major_version(answer.stderr)
    if version is None or version < OLDEST:
        said = answer.stderr.strip().partition("\n")[0] or f"exit code {answer.returncode}"
        raise StackError(f"{program} is not Java {OLDEST} or newer: {said}", next_step=_NEXT_STEP)
    return program


def major_version(text: str) -> int | None:
    """The major version in the answer of ``java -version``; None if there is none.

    ``"17.0.15"`` is 17, ``"21-ea"`` is 21, ``"1.8.0_402"`` is 8.
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def driver_flags(offsets: int) -> str:
    """Flags for the JVM of a driver that reads this number of offsets; may be empty."""
    return beside(QUICK_START if offsets <= QUICK_START_OFFSETS_MAX else THROUGHPUT)


def with_flags(conf: Mapping[str, str], flags: str, *, unless: str = "(?!)") -> dict[str, str]:
    """Spark's configuration with more flags for the driver's JVM; its own come last and so win.

    Args:
        conf: The configuration.
        flags: The flags.
        unless: A pattern; nothing is added to flags that it is found in.
    """
    own = conf.get(JAVA_OPTIONS, "")
    if re.search(unless, own):
        return dict(conf)
    return {**conf, JAVA_OPTIONS: f"{flags} {own}".strip()}


def with_throughput(conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration with a collector for long reads, unless one was chosen.

    Args:
        conf: Of a session whose JVM starts here.
    """
    return with_flags(conf, beside(THROUGHPUT, conf.get(JAVA_OPTIONS, "")))


def beside(flags: str, own: str = "") -> str:
    """Flags of Tally's for a JVM, without their collector where another one was chosen.

    Java does not start with two of them.

    Args:
        flags: Tally's.
        own: Other flags of the same JVM; variables of the environment count as well.
    """
    others = [own, *(os.environ.get(name, "") for name in _JAVA_VARIABLES)]
    is_chosen = any(map(_COLLECTOR.search, others))
    return _OF_COLLECTOR.sub("", flags).strip() if is_chosen else flags


def with_logging(conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's configuration with Tally's of the JVM's log, unless it names one.

    It lets warnings and errors through, without those of every start.
    """
    return with_flags(conf, f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"', unless="log4j")


def is_noise(line: bytes) -> bool:
    """Whether a line of the JVM's stderr, which its log does not govern, says nothing."""
    return line.rstrip() == _INCUBATOR


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for temporary files, deleted at the end; after a SIGKILL the next call deletes it.

    Raises:
        ConfigError: The user's temporary folder is not the user's alone.
        UnwritableError: It is full, or cannot be written.
    """
    path = new_folder("spark")
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
    path = new_folder("spark")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def with_scratch(conf: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Spark's configuration with its temporary files in a folder, unless it names another one."""
    ours = f'"-Djava.io.tmpdir={folder}"'
    return with_flags({LOCAL_DIR: str(folder), **conf}, ours, unless="java.io.tmpdir")


def with_archive(conf: Mapping[str, str], jars_dir: Path | None) -> dict[str, str]:
    """Spark's configuration with the archive of classes for the driver's JVM, if there is one.

    :mod:`tally.spark.class_archive` makes it.

    Args:
        conf: Spark's configuration; Java options that name an archive of their own stay.
        jars_dir: The jars beside which the archive lies.
    """
    archive = jars_dir and next(jars_dir.absolute().glob("classes-*.jsa"), None)
    if archive is None:
        return dict(conf)
    ours = f'{SILENT_ARCHIVE} -XX:+VerifySharedSpaces "-XX:SharedArchiveFile={archive}"'
    return with_flags(conf, ours, unless="-Xshare|SharedArchiveFile|ArchiveClassesAtExit")
