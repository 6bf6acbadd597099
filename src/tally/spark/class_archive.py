"""An archive of the classes that Spark's driver loads: with it its JVM starts in half the time.

Java maps the archive into memory, where otherwise it reads, checks and links some ten thousand
classes out of three hundred jars. It uses the archive if its own version and the class path are
those for which it was made, and starts as without one if they are not. Java 17 finds no class of a
path with a blank in an archive.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tally.config.servers import SparkSettings
from tally.spark.driver_log import JAVA_OPTIONS, with_logging
from tally.spark.jars import Announce
from tally.spark.java import JAVA_ENVIRONMENT, java
from tally.spark.packages import spark_home

_PATTERN: Final = "classes-*.jsa"
# An archive of another version of Java, or for another class path, is nothing to warn about; a
# damaged one must not end the JVM.
_FLAGS: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -XX:+VerifySharedSpaces"
_LINES_SHOWN: Final = 3
_TIMEOUT_S: Final = 600
_WORK: Final = ".archive-"
_TITLE: Final = "Spark's classes (150 MB)"


def with_archive(options: Mapping[str, str], settings: SparkSettings) -> dict[str, str]:
    """Spark's configuration with the archive for the driver's JVM, if there is one.

    Args:
        options: Spark's configuration; Java options that name an archive of their own stay.
        settings: The jars beside which the archive lies.
    """
    java_options = options.get(JAVA_OPTIONS, "")
    archive = None if settings.jars_dir is None else _find(settings.jars_dir)
    if archive is None or "SharedArchiveFile" in java_options or "-Xshare" in java_options:
        return dict(options)
    flags = f'{java_options} {_FLAGS} "-XX:SharedArchiveFile={archive}"'
    return {**options, JAVA_OPTIONS: flags.strip()}


def build_archive(jars_dir: Path, announce: Announce) -> Path | None:
    """Make the archive beside the connector's jars, unless it is there.

    Spark starts without it as well, only slower.

    Args:
        jars_dir: The connector's jars, as ``spark.jars_dir`` will name them.
        announce: Called with each line of progress.

    Returns:
        The archive; None where this Java cannot make or use it, which is announced with the reason.

    Raises:
        PackageMissingError: PySpark is not installed.
        StackError: Java is missing or too old.
    """
    jars_dir = jars_dir.absolute()
    if " " in f"{jars_dir}{spark_home()}":
        announce(f"{_TITLE}: not archived, as Java uses none below a folder with a blank")
        return None
    target = jars_dir / _PATTERN.replace("*", _identity(jars_dir))
    if target.exists():
        return target
    announce(f"{_TITLE}: archived, so that Spark starts in half the time")
    _sweep(jars_dir)
    with tempfile.TemporaryDirectory(prefix=_WORK, dir=jars_dir) as work:
        made = Path(work) / target.name
        failure = _run_job(jars_dir, made)
        if failure is not None:
            announce(f"{_TITLE}: not archived, so Spark starts as before: {failure}")
            return None
        for stale in jars_dir.glob(_PATTERN):
            stale.unlink()
        made.replace(target)
    return target


def _sweep(jars_dir: Path) -> None:
    """Delete what a killed call has left; another call may be at work."""
    for left in jars_dir.glob(f"{_WORK}*"):
        if time.time() - left.stat().st_mtime > 2 * _TIMEOUT_S:
            shutil.rmtree(left, ignore_errors=True)


def _find(jars_dir: Path) -> Path | None:
    return next(jars_dir.absolute().glob(_PATTERN), None)


def _identity(jars_dir: Path) -> str:
    """What Java compares before it uses an archive, as a digest."""
    answer = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)
    text = f"{answer.stderr}\n{version('pyspark')}\n{spark_home()}\n{jars_dir}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _run_job(jars_dir: Path, made: Path) -> str | None:
    """Run the job; returns the last lines that were printed if there is no archive after it."""
    home = spark_home()
    flags = f'"-XX:ArchiveClassesAtExit={made}" -Xlog:cds=off -Xlog:cds+dynamic=off'
    argv = [
        str(home / "bin" / "spark-submit"),
        *("--master", "local[1]"),
        *("--driver-class-path", f"{jars_dir}/*"),
        *("--conf", f"{JAVA_OPTIONS}={with_logging(flags)}"),
        *(str(Path(__file__).with_name("archived_job.py")), str(jars_dir)),
    ]
    environment = {
        **os.environ,
        **JAVA_ENVIRONMENT,
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    try:
        answer = subprocess.run(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {_TIMEOUT_S} s"
    if answer.returncode == 0 and made.exists():
        return None
    last = answer.stdout.splitlines()[-_LINES_SHOWN:]
    return "; ".join(last) or f"exit code {answer.returncode}"
