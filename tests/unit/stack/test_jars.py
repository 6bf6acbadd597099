"""Only the jars in the committed list are used."""

import hashlib
from pathlib import Path

import pytest

from tally.errors import StackError
from tally_local.stack.jars import CONFIGURATIONS, Announce, Jars, check, committed_checksums

CONTENT = b"a jar"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class DeliveredJars(Jars):
    """Jars whose list has one entry, and which lie in ``delivered`` once they are fetched."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "downloads", checksums={"spark": {"a-1.jar": DIGEST}})
        self._delivered = folder / "delivered"
        self._delivered.mkdir()

    def fetch(self, configuration: str, announce: Announce) -> Path:  # noqa: ARG002 - as in Jars
        """Instead of Ivy, which would download them."""
        assert configuration == "spark"
        return self._delivered


@pytest.fixture
def jars(tmp_path: Path) -> Jars:
    return DeliveredJars(tmp_path)


def test_the_committed_list_names_every_jar_of_every_configuration() -> None:
    """SHA-256 throughout, the versions we say in the file names."""
    checksums = committed_checksums()
    assert checksums.keys() == CONFIGURATIONS.keys()
    assert all(len(digest) == 64 for names in checksums.values() for digest in names.values())
    assert "kafka_2.13-4.3.1.jar" in checksums["kafka"]
    assert "spark-sql-kafka-0-10_2.13-4.2.0.jar" in checksums["spark"]


def test_the_connector_brings_nothing_that_spark_has() -> None:
    """With two versions of a library on Spark's class path, either could be loaded."""
    names = committed_checksums()["spark"]
    assert not [name for name in names if name.startswith(("hadoop-", "scala-", "slf4j-"))]


def test_checked_jars_are_installed_once(jars: Jars, tmp_path: Path) -> None:
    """The second call finds the folder and fetches nothing."""
    (tmp_path / "delivered" / "a-1.jar").write_bytes(CONTENT)
    folder = jars.install("spark", lambda _: None)
    assert (folder / "a-1.jar").read_bytes() == CONTENT
    assert not (tmp_path / "delivered").exists()
    assert jars.install("spark", lambda _: None) == folder
    assert jars.are_installed("spark")


def test_a_wrong_checksum_installs_nothing(jars: Jars, tmp_path: Path) -> None:
    """The error has the name and both sums."""
    (tmp_path / "delivered" / "a-1.jar").write_bytes(b"something else")
    with pytest.raises(StackError, match=rf"a-1\.jar has [0-9a-f]+ instead of {DIGEST}"):
        jars.install("spark", lambda _: None)
    assert not jars.are_installed("spark")


def test_missing_and_surplus_jars_are_named(tmp_path: Path) -> None:
    """A resolver that resolves to other jars is noticed."""
    (tmp_path / "b-2.jar").write_bytes(CONTENT)
    with pytest.raises(StackError) as caught:
        check(tmp_path, {"a-1.jar": DIGEST})
    assert "a-1.jar is missing" in caught.value.what
    assert "b-2.jar is not in the list" in caught.value.what
