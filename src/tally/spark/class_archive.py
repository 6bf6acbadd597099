"""An archive of the classes that Spark's driver loads: with it its JVM starts in half the time.

Java maps the archive into memory, where otherwise it reads, checks and links some ten thousand
classes out of three hundred jars. It uses the archive if its own version and the class path are
those for which it was made, and starts as without one if they are not. Java 17 finds no class of a
path with a blank in an archive, and cannot keep one up to date by itself.

Usage: ``python -m tally.spark.class_archive JARS_DIR ARCHIVE``, by :func:`build_archive`.
"""

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tally.config.pipeline import Pipeline
from tally.config.servers import SparkSettings
from tally.lines.parsing import CATALOGUE
from tally.spark.grouping import Grouping
from tally.spark.jars import Announce, spark_home
from tally.spark.java import JAVA_ENVIRONMENT, JAVA_OPTIONS, SILENT_ARCHIVE, java, with_logging
from tally.spark.reading import collect
from tally.spark.session import spark_session

_TITLE: Final = "Spark's classes (150 MB)"
_CHARS_SHOWN: Final = 500
_TIMEOUT_S: Final = 600


def build_archive(jars_dir: Path, announce: Announce) -> None:
    """Make the archive beside the connector's jars, unless it is there.

    Spark starts without it as well, only slower: where this Java cannot make or use it, that is
    announced with the reason.

    Args:
        jars_dir: The connector's jars, as ``spark.jars_dir`` will name them.
        announce: Called with each line of progress.

    Raises:
        PackageMissingError: PySpark is not installed.
        StackError: Java is missing or too old.
    """
    jars_dir, home = jars_dir.absolute(), spark_home()
    if " " in f"{jars_dir}{home}":
        announce(f"{_TITLE}: not archived, as Java uses none below a folder with a blank")
        return
    # What Java compares before it uses an archive.
    answer = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)
    identity = f"{answer.stderr}\n{version('pyspark')}\n{home}\n{jars_dir}"
    target = jars_dir / f"classes-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"
    if target.exists():
        return
    announce(f"{_TITLE}: archived, so that Spark starts in half the time")
    made = target.with_suffix(f".{os.getpid()}")
    ended = subprocess.run(
        [sys.executable, "-m", __name__, str(jars_dir), str(made)],
        env={**os.environ, **JAVA_ENVIRONMENT, "SPARK_HOME": str(home)},
        stdout=subprocess.PIPE,  # until the JVM has ended, which has it too
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=_TIMEOUT_S,
    )
    if ended.returncode or not made.exists():
        lines = [ln for ln in ended.stdout.splitlines() if not ln.startswith((" ", "Traceback"))]
        failure = "; ".join(lines)[:_CHARS_SHOWN] or f"exit code {ended.returncode}"
        made.unlink(missing_ok=True)
        announce(f"{_TITLE}: not archived, so Spark starts as before: {failure}")
        return
    made.replace(target)
    for stale in jars_dir.glob("classes-*.jsa"):
        if stale != target:
            stale.unlink(missing_ok=True)


def _load_classes(jars_dir: Path, archive: Path) -> None:
    """Do what a driver does for each batch, on two lines, in a JVM that archives its classes."""
    conf = {JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={archive}" {SILENT_ARCHIVE}'}
    settings = SparkSettings(master="local[1]", jars_dir=jars_dir, conf=with_logging(conf))
    with spark_session(settings, "classes") as session:
        for name in ("fixed", "log4j", "json"):
            rows = [(bytearray(CATALOGUE[name].example.encode()), 0), (bytearray(b"x"), 1)]
            records = session.createDataFrame(rows, "value binary, offset long").selectExpr(
                "*", "0 as partition", "cast(null as binary) as key", "now() as timestamp"
            )
            pipeline = Pipeline.named(
                "classes", {"topics": ["t"], "line_format": name, "labels": ["level"]}
            )
            grouping = Grouping.of(pipeline, {"t"})
            for frame in (grouping.counts(records), grouping.malformed(records, 100)):
                list(collect(frame, ()))


if __name__ == "__main__":
    _load_classes(Path(sys.argv[1]), Path(sys.argv[2]))
