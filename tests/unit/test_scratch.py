"""Spark's temporary files lie in a folder that somebody deletes, whatever is killed."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tally.errors import UnwritableError
from tally.spark.java import JAVA_OPTIONS, LOCAL_DIR, scratch_folder, with_scratch

SCRIPT = """
import sys
from pathlib import Path
from tally.spark.java import folder_of_process, scratch_folder
process = folder_of_process()
assert process == folder_of_process()
with scratch_folder() as folder:
    for path in (process, folder):
        (path / "blockmgr-1").mkdir()
        (path / "blockmgr-1" / "data").touch()
    print("written", flush=True)
    sys.stdin.read()
assert not folder.exists()
"""


def process_with_folders() -> "subprocess.Popen[str]":
    """A process with a folder of its own and one of a block."""
    command = [sys.executable, "-c", SCRIPT]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


def test_what_a_killed_process_left_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a running one uses stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def folders() -> set[Path]:
        return set(tmp_path.glob("tally-*/spark-*"))

    with process_with_folders() as running:
        of_running = folders()
        with process_with_folders() as killed:
            killed.kill()
        assert len(folders()) == 4
        with scratch_folder() as own:
            assert folders() == {*of_running, own}
        running.communicate("")
    assert running.returncode == 0
    assert folders() == set()


def test_a_configured_folder_is_used(tmp_path: Path) -> None:
    """Spark's two kinds of temporary files can be put elsewhere each by its own key."""
    folder = tmp_path / "a folder"
    ours = f'"-Djava.io.tmpdir={folder}"'
    assert with_scratch({}, folder) == {LOCAL_DIR: str(folder), JAVA_OPTIONS: ours}
    configured = {LOCAL_DIR: "/data", JAVA_OPTIONS: "-Xss4m"}
    assert with_scratch(configured, folder) == {LOCAL_DIR: "/data", JAVA_OPTIONS: f"{ours} -Xss4m"}
    elsewhere = {JAVA_OPTIONS: "-Djava.io.tmpdir=/data"}
    assert with_scratch(elsewhere, folder)[JAVA_OPTIONS] == "-Djava.io.tmpdir=/data"


def test_an_unusable_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named; here its path is too long for anything in it, which stops root as well."""
    folder = tmp_path
    while (room := 4090 - len(str(folder))) > 1:
        folder /= "x" * min(200, room - 1)
    folder.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with (
        pytest.raises(UnwritableError, match=r"tally-\d+: File name too long") as raised,
        scratch_folder(),
    ):
        pass
    assert "TMPDIR" in raised.value.next_step
