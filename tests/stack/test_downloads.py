"""Spark's connector is fetched by the real Ivy, from what the set-up has left in its cache."""

from pathlib import Path

import pytest

from tally.spark.jars import CONNECTOR, check, install_connector
from tests.conftest import PROJECT

pytestmark = pytest.mark.stack


def test_the_connector_is_fetched_into_a_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged jar is replaced; a second call leaves the folder as it is."""
    # Ivy finds there what the set-up has fetched, and needs no network.
    cache = PROJECT / ".tally" / "downloads" / "ivy" / "cache"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f'"-Divy.cache.dir={cache}"')
    folder = tmp_path / "a folder" / "jars"
    folder.mkdir(parents=True)
    wanted = CONNECTOR.checksums["spark"]
    (folder / min(wanted)).write_bytes(b"damaged")
    told: list[str] = []
    found = install_connector(folder, told.append)
    check(folder, wanted)
    assert {jar.name for jar in found} == wanted.keys()
    assert told
    told.clear()
    assert install_connector(folder, told.append) == found
    assert told == []
