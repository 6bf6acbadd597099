"""The archive of Spark's classes: used by the driver's JVM, and never in the way."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tally.config.servers import SparkSettings
from tally.spark.class_archive import build_archive, with_archive
from tally.spark.driver_log import JAVA_OPTIONS
from tally_local.stack.stack import Stack
from tests.conftest import PROJECT

pytestmark = pytest.mark.spark

COUNT_TO_SEVEN = """
import sys
from tally.config.servers import SparkSettings
from tally.spark.session import spark_session
settings = SparkSettings(
    master="local[1]",
    jars_dir=sys.argv[1],
    conf={"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={sys.argv[2]}"},
)
with spark_session(settings, "an archive") as session:
    print("counted", session.range(7).count())
"""
FROM_ARCHIVE = "org.apache.spark.SparkContext source: shared objects file (top)"


@pytest.fixture(scope="module")
def jars_dir() -> Path:
    """The connector's jars with the archive that the set-up made."""
    downloads = Stack(project=PROJECT)
    downloads.install()
    return downloads.jars_dir


def classes_of_spark(jars_dir: Path, folder: Path) -> str:
    """The classes that a driver's JVM loads, and from where; it must count as always."""
    loaded = folder / "loaded"
    answer = subprocess.run(
        [sys.executable, "-c", COUNT_TO_SEVEN, str(jars_dir), str(loaded)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "counted 7" in answer.stdout, answer.stderr
    return loaded.read_text(encoding="utf-8", errors="replace")


def test_the_set_up_makes_an_archive_that_the_driver_uses(jars_dir: Path, tmp_path: Path) -> None:
    """The class path is the one for which it was made. A path with a blank is none for Java 17."""
    loaded = classes_of_spark(jars_dir, tmp_path)
    found = loaded.count("shared objects file") > 5 * loaded.count("source: file:")
    assert (FROM_ARCHIVE in loaded, found) == (" " not in str(PROJECT),) * 2


@pytest.mark.parametrize("damage", ["of another class path", "damaged"])
def test_an_archive_that_java_cannot_use_stops_nothing(
    jars_dir: Path, tmp_path: Path, damage: str
) -> None:
    """Spark starts as without one."""
    copied = tmp_path / "jars"
    shutil.copytree(jars_dir, copied)
    (archive,) = copied.glob("*.jsa")
    if damage == "damaged":
        archive.chmod(0o600)
        with archive.open("r+b") as stream:
            stream.seek(5000)
            stream.write(b"x" * 4000)
    assert FROM_ARCHIVE not in classes_of_spark(copied, tmp_path)


def test_a_java_that_makes_no_archive_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jars_dir: Path
) -> None:
    """And nothing fails: Spark needs none."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        "echo 'Unrecognized option: -XX:ArchiveClassesAtExit' >&2\nexit 1\n",
        encoding="utf-8",
    )
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    copied = tmp_path / "jars"
    shutil.copytree(jars_dir, copied, ignore=shutil.ignore_patterns("*.jsa"))
    said: list[str] = []
    assert build_archive(copied, said.append) is None
    assert "not archived" in said[-1]
    assert "Unrecognized option" in said[-1]
    assert sorted(p.suffix for p in copied.iterdir()) == [".jar"] * len(list(copied.iterdir()))


@pytest.mark.parametrize("own", ["-Xshare:off", "-XX:SharedArchiveFile=mine.jsa"])
def test_an_archive_of_ones_own_stays(tmp_path: Path, own: str) -> None:
    """Only one can be used."""
    (tmp_path / "classes-1.jsa").touch()
    settings = SparkSettings(jars_dir=tmp_path)
    assert with_archive({JAVA_OPTIONS: own}, settings) == {JAVA_OPTIONS: own}


@pytest.mark.parametrize(
    ("own", "first"), [({}, "-Xlog"), ({JAVA_OPTIONS: "-Xss4m"}, "-Xss4m -Xlog")]
)
def test_the_archive_is_added_to_other_options(
    tmp_path: Path, own: dict[str, str], first: Sequence[str]
) -> None:
    """A folder with a blank in its name stays one word; without an archive nothing is added."""
    folder = tmp_path / "my jars"
    folder.mkdir()
    settings = SparkSettings(jars_dir=folder)
    assert with_archive(own, settings) == own
    assert with_archive(own, SparkSettings()) == own
    (folder / "classes-1.jsa").touch()
    options = with_archive(own, settings)[JAVA_OPTIONS]
    assert options.startswith(f"{first}:cds=off")
    assert options.endswith(f'"-XX:SharedArchiveFile={folder}/classes-1.jsa"')
