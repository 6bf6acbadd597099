"""The page for one's own servers: from the wheel to the first committed minute, block by block."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.first_use.conftest import INSTALL, counted
from tests.first_use.pages import blocks, checkout, commands, execute
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.airflow, pytest.mark.timeout(3600)]

OURS = ("kafka_tally", "_editable_impl", "__editable__", "tally")
MINUTE = "2026-01-31 23:59"


@pytest.fixture
def without_tally(tmp_path: Path) -> Path:
    """The programs of a Python that has Airflow and PySpark, and not Tally.

    Its packages are those of the set-up, so that none is downloaded.
    """
    environment, old = tmp_path / "own-python", Path(sys.prefix)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (target,) = environment.glob("lib/python*/site-packages")
    (source,) = old.glob("lib/python*/site-packages")
    for entry in source.iterdir():
        if not entry.name.startswith(OURS) and entry.suffix != ".pth":
            (target / entry.name).symlink_to(entry)
    programs = environment / "bin"
    for script in (old / "bin").iterdir():
        if (programs / script.name).exists() or script.name == "tally" or not script.is_file():
            continue
        text = script.read_bytes()
        if not text.startswith(b"\x7fELF"):
            ours = text.replace(str(old).encode(), str(environment).encode())
            (programs / script.name).write_bytes(ours)
            (programs / script.name).chmod(0o755)
    return programs


def test_the_page_leads_to_the_first_committed_minute(
    world: World, own_servers: dict[str, str], without_tally: Path, tmp_path: Path
) -> None:
    """With the wheel of `make dist`, outside of the checkout, and nothing that the page lacks."""
    built = checkout(tmp_path / "checkout")
    execute(["make dist"], built, {})
    folder = tmp_path / "own folder"
    folder.mkdir()
    shutil.move(built / "dist", folder / "dist")
    world.produce([f"{MINUTE}:59 ERROR first", f"{MINUTE}:59 INFO other"], 0)
    world.produce([f"{MINUTE}:59 ERROR second", "not a line"], 1)

    page = blocks(INSTALL)
    (settings,) = [text for language, text in page if language == "toml"]
    # Its folder is an example; the rest of the path must be where the commands have put the files.
    own = settings.replace("/opt/tally/", f"{folder}/")
    assert own != settings
    (folder / "tally.toml").write_text(own, encoding="utf-8")
    cache = PROJECT / ".tally" / "downloads" / "ivy" / "cache"
    said = execute(
        [line for language, text in page if language == "console" for line in commands(text)],
        folder,
        own_servers
        | {
            "PATH": f"{without_tally}:/usr/local/bin:/usr/bin:/bin",
            "AIRFLOW_HOME": str(tmp_path / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # Nothing is downloaded: pip finds all but the wheel installed, Ivy has it in its cache.
            "PIP_NO_INDEX": "1",
            "JDK_JAVA_OPTIONS": f'"-Divy.cache.dir={cache}"',
        },
    )
    assert "0 failed" in said
    assert counted(world) == {MINUTE: 2}
    assert f"{MINUTE}      2" in said
