"""Files with passwords are for their owner, and whole."""

import os
from pathlib import Path

import pytest

from tally.errors import StackError
from tally_local.stack.home import Credentials, read_json, write_private


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_private_file_is_0600_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a lax umask nor an older, open file lets others read; no half file, no rest stays."""
    path = tmp_path / "stack.toml"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        write_private(path, "new")
        write_private(tmp_path / "other", "new")
    finally:
        os.umask(before)
    assert mode(path) == mode(tmp_path / "other") == 0o600
    assert path.read_text() == "new"

    def fail(descriptor: int) -> None:
        raise OSError(28, f"no space left for {descriptor}")

    # A disk that is full: the one fault that no file of a test's own can have.
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        write_private(path, "newer")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other", "stack.toml"]
    assert path.read_text() == "new"


def test_a_file_we_did_not_write_is_an_error(tmp_path: Path) -> None:
    """Not a crash with a traceback."""
    for text in ("{", "[]"):
        (tmp_path / "ports.json").write_text(text)
        with pytest.raises(StackError):
            read_json(tmp_path / "ports.json")


def test_credentials_are_made_once_and_hidden(tmp_path: Path) -> None:
    """Each stack has its own; a newer version adds those it needs, and the known ones stay."""
    path, older = tmp_path / "credentials.json", tmp_path / "older.json"
    first = Credentials.of(path)
    assert Credentials.of(path) == first
    assert Credentials.of(tmp_path / "other.json") != first
    assert mode(path) == 0o600
    assert first.mysql_root not in repr(first)
    write_private(older, '{"mysql_root": "known", "forgotten": "x"}')
    assert Credentials.of(older).mysql_root == "known"
    assert len(Credentials.of(older).mysql_tally) >= 24
