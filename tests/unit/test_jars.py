"""Only the jars in the committed list are used."""

import hashlib
from pathlib import Path

import pytest

from tally import __version__
from tally.config.servers import SparkSettings
from tally.errors import JarsMissingError, PackageMissingError, UsageError
from tally.spark.jars import CONNECTOR, JarList, check, install_connector, is_download
from tally.spark.session import session_options
from tally_local.stack.server import SERVERS

CONTENT = b"a jar"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class DeliveredJars(JarList):
    """Jars whose list has one entry, and which lie in ``delivered`` once they are fetched."""

    def __init__(self, folder: Path) -> None:
        (folder / "jars.sha256").write_text(f"{DIGEST}  spark/a-1.jar\n", encoding="utf-8")
        super().__init__(folder, {"spark": "one jar"})
        (folder / "delivered").mkdir()

    def fetch(self, configuration: str, downloads: Path, announce: object) -> Path:  # noqa: ARG002
        """Instead of Ivy, which would download them."""
        assert configuration == "spark"
        return downloads.with_name("delivered")


def test_a_committed_list_names_every_jar_of_every_configuration() -> None:
    """SHA-256 throughout, the versions we say in the file names."""
    for wanted, configuration, jar in (
        (SERVERS, "kafka", "kafka_2.13-4.3.1.jar"),
        (CONNECTOR, "spark", "spark-sql-kafka-0-10_2.13-4.2.0.jar"),
    ):
        assert wanted.checksums.keys() == wanted.titles.keys()
        for names in wanted.checksums.values():
            assert names
            assert all(len(digest) == 64 for digest in names.values())
        assert jar in wanted.checksums[configuration]
    # With two versions of a library on Spark's class path, either could be loaded.
    names = CONNECTOR.checksums["spark"]
    assert not [name for name in names if name.startswith(("hadoop-", "scala-", "slf4j-"))]
    # Progress counts those of Ivy's lines that end the download of a jar.
    done = "\t[SUCCESSFUL ]"
    assert is_download(f"{done} org.apache.kafka#kafka-clients;3.9.2!kafka-clients.jar (310ms)")
    assert is_download(f"{done} org.xerial#snappy-java;1.1!snappy-java.jar(bundle) (9ms)")
    assert not is_download("\tfound org.apache.kafka#kafka-clients;3.9.2 in central")
    assert not is_download(f"{done} org.apache#apache;30!apache.pom (20ms)")


def test_only_checked_jars_are_installed(tmp_path: Path) -> None:
    """Once; wrong, missing and surplus jars are an error with their names and checksums."""
    jars, delivered = DeliveredJars(tmp_path), tmp_path / "delivered"
    asked = ("spark", tmp_path / "downloads", lambda _: None)
    (delivered / "a-1.jar").write_bytes(b"something else")
    with pytest.raises(JarsMissingError, match=rf"a-1\.jar has [0-9a-f]+ instead of {DIGEST}"):
        jars.install(*asked)
    assert not jars.folder(*asked[:2]).exists()
    with pytest.raises(JarsMissingError, match=r"b-2\.jar is missing.*a-1\.jar is not in the list"):
        check(delivered, {"b-2.jar": DIGEST})
    (delivered / "a-1.jar").write_bytes(CONTENT)
    folder = jars.install(*asked)
    assert (folder / "a-1.jar").read_bytes() == CONTENT
    assert not delivered.exists()
    assert jars.install(*asked) == folder
    assert jars.folder(*asked[:2]) == folder
    # Of another folder nothing is changed if it has other jars: Spark would load two versions.
    other = tmp_path / "other" / "kafka-clients-2.0.0.jar"
    other.parent.mkdir()
    other.write_bytes(CONTENT)
    with pytest.raises(UsageError, match="kafka-clients-2"):
        install_connector(other.parent, lambda _: None)
    assert list(other.parent.iterdir()) == [other]


def test_packages_of_another_version_are_not_sent_to_executors(tmp_path: Path) -> None:
    settings = SparkSettings(master="spark://127.0.0.1:7077", jars_dir=tmp_path)
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar").touch()
    assert "spark.archives" not in session_options(settings)
    (tmp_path / "tally-0.1.0.tar.gz").touch()
    with pytest.raises(PackageMissingError, match=r"tally-0\.1\.0\.tar\.gz") as raised:
        session_options(settings)
    assert f"tally jars {tmp_path} --python" in raised.value.next_step
    ours = tmp_path / f"tally-{__version__}.tar.gz"
    ours.touch()
    assert session_options(settings)["spark.archives"] == f"{ours}#tally_python"
