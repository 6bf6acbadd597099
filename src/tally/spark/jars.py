"""What is installed for Spark: Python packages, and jars by exact version.

Ivy fetches the jars; they are checked against committed checksums. No package is imported. The
folder of a configuration exists only once all that is in it has been checked, so its existence
proves the check. Its name has a digest of the checksums: another list, another folder.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from tally.config.servers import SparkSettings
from tally.errors import JarsMissingError, PackageMissingError, UsageError
from tally.spark.java import JAVA_ENVIRONMENT, java

Announce = Callable[[str], None]

# Relative to the working directory: brackets in the checkout's path would be taken for tokens.
PATTERN = "fetched/[conf]/[artifact]-[revision](-[classifier]).[ext]"
STEPS: Final = 5
"""How many times a download says how far it is."""
_DRIVER: Final = ("pyspark", "py4j", "pyarrow")
_CONNECT: Final = ("pyspark", "grpc", "pandas", "pyarrow")


@dataclass(frozen=True)
class JarList:
    """The jars that one ``ivy.xml`` asks for, with the ``jars.sha256`` beside it."""

    source: Traversable
    """The folder with both files."""
    titles: Mapping[str, str]
    """What each configuration is, with its size, for the progress."""

    @cached_property
    def checksums(self) -> Mapping[str, Mapping[str, str]]:
        """Per configuration, the SHA-256 of each jar by file name, as committed with the source."""
        text = (self.source / "jars.sha256").read_text(encoding="utf-8")
        checksums: dict[str, dict[str, str]] = {conf: {} for conf in self.titles}
        for line in text.splitlines():
            digest, path = line.split()
            configuration, name = path.split("/")
            checksums[configuration][name] = digest
        return checksums

    def folder(self, configuration: str, downloads: Path) -> Path:
        """Where the jars of ``configuration`` lie, checked, once they are installed."""
        checksums = self.checksums[configuration]
        lines = "".join(f"{digest} {name}\n" for name, digest in sorted(checksums.items()))
        digest = hashlib.sha256(lines.encode()).hexdigest()[:12]
        return downloads / "jars" / f"{configuration}-{digest}"

    def install(self, configuration: str, downloads: Path, announce: Announce) -> Path:
        """Fetch and check the jars of ``configuration`` unless they are there; return their folder.

        Raises:
            JarsMissingError: Ivy could not fetch them or a checksum is wrong; nothing is installed.
            PackageMissingError: PySpark, whose Ivy fetches them, is not installed.
            StackError: Java is missing or too old.
        """
        target = self.folder(configuration, downloads)
        if not target.is_dir():
            fetched = self.fetch(configuration, downloads, announce)
            check(fetched, self.checksums[configuration])
            target.parent.mkdir(parents=True, exist_ok=True)
            fetched.replace(target)
        return target

    def fetch(self, configuration: str, downloads: Path, announce: Announce) -> Path:
        """Let Ivy fetch the jars of ``configuration``; return their folder, unchecked."""
        announce(f"{self.titles[configuration]}: downloading jars with Ivy")
        work = downloads / "ivy"
        work.mkdir(parents=True, exist_ok=True)
        fetched = work / "fetched" / configuration
        shutil.rmtree(fetched, ignore_errors=True)
        with resources.as_file(self.source / "ivy.xml") as ivy_file:
            argv = [
                java(),
                "-XX:-UsePerfData",
                f"-Divy.default.ivy.user.dir={work}",
                *("-jar", str(next(spark_home().glob("jars/ivy-*.jar"))), "-ivy", str(ivy_file)),
                *("-confs", configuration, "-retrieve", PATTERN),
            ]
            self._run(argv, configuration, work, announce)
        return fetched

    def _run(self, argv: list[str], configuration: str, work: Path, announce: Announce) -> None:
        title, total = self.titles[configuration], len(self.checksums[configuration])
        steps = {total * step // STEPS for step in range(1, STEPS + 1)}
        last: deque[str] = deque(maxlen=15)
        loaded = 0
        with subprocess.Popen(
            argv,
            cwd=work,
            env={**os.environ, **JAVA_ENVIRONMENT},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                for line in process.stdout or ():
                    last.append(line.rstrip())
                    loaded += is_download(line)
                    if is_download(line) and loaded in steps:
                        announce(f"{title}: {loaded} of {total} jars downloaded")
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise JarsMissingError(
                f"Ivy could not fetch the jars of {configuration}:\n" + "\n".join(last),
                next_step="check that Maven Central can be reached, then try again",
            )


CONNECTOR: Final = JarList(
    resources.files("tally.spark") / "connector", {"spark": "Spark's Kafka connector (13 MB)"}
)
"""Spark's Kafka connector with its dependencies, for the PySpark of the extra ``spark``."""


def check_packages(settings: SparkSettings) -> None:
    """Raise unless this Python has the packages to start Spark, or to use a Connect server.

    Raises:
        PackageMissingError: A package is not installed; it says which, and how to install it.
    """
    extra, modules = ("connect", _CONNECT) if settings.is_connect else ("spark", _DRIVER)
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise PackageMissingError(
            f"spark.master is {settings.master}, and this Python has no {', '.join(missing)}",
            next_step=f"pip install 'kafka-tally[{extra}]'",
        )


def spark_home() -> Path:
    """The folder of the installed PySpark, with the programs that start its JVM.

    Raises:
        PackageMissingError: It is not installed, or only as a client of a Connect server.
    """
    spec = importlib.util.find_spec("pyspark")
    home = None if spec is None or spec.origin is None else Path(spec.origin).parent
    if home is None or not (home / "bin" / "spark-submit").is_file():
        raise PackageMissingError(
            "PySpark with its JVM is not installed in this Python",
            next_step="pip install 'kafka-tally[spark]'",
        )
    return home


def install_connector(folder: Path, announce: Announce) -> list[Path]:
    """Fetch Spark's Kafka connector into a folder, for ``spark.jars_dir``.

    Args:
        folder: Is created. Jars that are there stay if they are the right ones.
        announce: Called with each line of progress.

    Returns:
        The jars.

    Raises:
        UsageError: The folder holds other jars; nothing was written.
        JarsMissingError: Ivy could not fetch them, or a checksum is wrong; nothing was written.
        PackageMissingError: PySpark is not installed.
        StackError: Java is missing or too old.
    """
    wanted = CONNECTOR.checksums["spark"]
    if others := sorted(jar.name for jar in folder.glob("*.jar") if jar.name not in wanted):
        raise UsageError(
            f"{folder} holds other jars: {', '.join(others)}",
            next_step="name another folder, or delete them: Spark would load both",
        )
    if wanted.items() <= (folder_checksums(folder) if folder.is_dir() else {}).items():
        return sorted(folder.glob("*.jar"))
    with tempfile.TemporaryDirectory(prefix="tally-jars-") as work:
        fetched = CONNECTOR.install("spark", Path(work), announce)
        folder.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(jar, folder)) for jar in sorted(fetched.iterdir())]


def folder_checksums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in ``folder`` by name."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def check(folder: Path, expected: Mapping[str, str]) -> None:
    """Compare the files of ``folder`` with ``expected``.

    Raises:
        JarsMissingError: A file is missing, unexpected or different; all such files are named.
    """
    found = folder_checksums(folder)
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"{name} is not in the list" for name in sorted(found.keys() - expected.keys())]
    differing = [name for name in sorted(expected.keys() & found) if found[name] != expected[name]]
    wrong += [f"{name} has {found[name]} instead of {expected[name]}" for name in differing]
    if wrong:
        raise JarsMissingError(
            f"the jars in {folder} are not the ones in jars.sha256: {'; '.join(wrong)}",
            next_step=f"delete {folder.parent.parent} and try again; never use these jars",
        )


def is_download(line: str) -> bool:
    """Whether a line of Ivy's output says that a jar has arrived."""
    return "[SUCCESSFUL ]" in line and ".jar" in line
