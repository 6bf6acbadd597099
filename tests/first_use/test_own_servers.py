"""The pages for one's own servers, executed on the session's; tests/console has the README's."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.spark.java import QUICK_START
from tests.campaigns import VARIABLE
from tests.first_use.pages import blocks, checkout, commands, execute
from tests.servers import PROJECT
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.airflow, pytest.mark.timeout(3600)]

PASSWORD = "PASSWORD"  # noqa: S105 - as the page has it, for a user that lives as long as the test
INSTALL = PROJECT / "docs" / "install.md"
OURS = ("kafka_tally", "_editable_impl", "__editable__", "tally")
PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
MINUTE = "2026-01-31 23:59"


@pytest.fixture
def own_servers(world: World) -> Iterator[dict[str, str]]:
    """Variables for real servers, with a database that the page's statements have made."""
    (statements,) = [text for language, text in blocks(INSTALL) if language == "sql"]
    name = world.name
    of_name = re.sub(r"\btally(_console)?\b", rf"{name}\1", statements)
    world.as_root(*filter(None, (statement.strip() for statement in of_name.split(";"))))
    kafka, mysql = world.settings.kafka, world.settings.mysql
    yield {
        "TALLY_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "TALLY_MYSQL__HOST": mysql.host,
        "TALLY_MYSQL__PORT": str(mysql.port),
        "TALLY_MYSQL__USER": name,
        "TALLY_MYSQL__DATABASE": name,
        "TALLY_PIPELINES__ERROR_LOG__TOPICS": json.dumps([world.topic]),
    }
    world.as_root(f"drop database {name}", f"drop user {name}, {name}_console")


@pytest.fixture(params=["locked", *(["other ends"] if os.environ.get(VARIABLE) else [])])
def without_tally(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The programs of a Python with Airflow, PySpark and all that the wheel needs, but Tally."""
    return locked(tmp_path) if request.param == "locked" else other_ends(tmp_path)


def other_ends(tmp_path: Path) -> Path:
    """With the oldest versions that the wheel allows and that go together."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    pandas, *spark = sorted(extras["spark"])
    airflow = (re.sub(r">=([^,]+).*", r"==\1", one) for one in extras["airflow"])
    needed = [*project["dependencies"], *airflow, *spark]
    (limits := tmp_path / "limits.txt").write_text(pandas, encoding="utf-8")
    environment = tmp_path / "own-python"
    uv = Path(sys.prefix) / "bin" / "uv"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", environment / "bin" / "python"]
    oldest = ("--resolution", "lowest-direct", "--constraint", limits)
    subprocess.run([*install, *oldest, *needed], check=True)
    subprocess.run([*install, "pip"], check=True)
    return environment / "bin"


def locked(tmp_path: Path) -> Path:
    """With what the set-up has, by links."""
    environment, old = tmp_path / "own-python", Path(sys.prefix)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (target,) = environment.glob("lib/python*/site-packages")
    (source,) = old.glob("lib/python*/site-packages")
    for entry in source.iterdir():
        if not entry.name.startswith(OURS) and entry.suffix != ".pth":
            (target / entry.name).symlink_to(entry)
    programs = environment / "bin"
    for script in (old / "bin").iterdir():
        own = programs / script.name
        if own.exists() or script.name == "tally" or not script.is_file():
            continue
        text = script.read_bytes()
        if not text.startswith(b"\x7fELF"):
            own.write_bytes(text.replace(str(old).encode(), str(environment).encode()))
            own.chmod(0o755)
    return programs


def counted(world: World) -> dict[str, int]:
    """The result table of the pages' pipeline, by minute."""
    root = world.connect_as_root(database=world.name)
    with root as connection, connection.cursor() as cursor:
        cursor.execute(
            "select date_format(log_time, '%Y-%m-%d %H:%i') as at, log_count from error_log"
        )
        return {row["at"]: row["log_count"] for row in cursor.fetchall()}


def test_the_pages_lead_to_the_first_committed_minute(
    world: World, own_servers: dict[str, str], without_tally: Path, tmp_path: Path
) -> None:
    """With the wheel of `make dist`: Airflow counts by the one, the command line by the README."""
    built = checkout(tmp_path / "a checkout")
    execute(["make dist"], built, {})
    folder = tmp_path / "own folder"  # with a blank, so that no archive of classes is made
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
    variables = own_servers | {
        "PATH": f"{without_tally}:{PROGRAMS}",
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Nothing is downloaded: pip finds all but the wheel installed, Ivy has it in its cache.
        "PIP_NO_INDEX": "1",
        "JDK_JAVA_OPTIONS": f'"-Divy.cache.dir={cache}" {QUICK_START}',
    }
    said = execute(
        [line for language, text in page if language == "console" for line in commands(text)],
        folder,
        variables,
    )
    assert "0 failed" in said
    assert counted(world) == {MINUTE: 2}
    assert f"{MINUTE}      2" in said

    world.produce([f"{MINUTE}:59 ERROR third"], 0)
    page = blocks(PROJECT / "README.md", "## With your own servers")
    ((_, settings),) = [block for block in page if block[0] == "toml"]
    ((_, shown),) = [block for block in page if block[0] == "console"]
    another = tmp_path / "another folder"
    another.mkdir()
    (another / "tally.toml").write_text(settings, encoding="utf-8")
    execute(
        [line.replace("…", PASSWORD) for line in commands(shown)],
        another,
        variables | {"TALLY_SPARK__JARS_DIR": str(folder / "jars")},
    )
    assert counted(world) == {MINUTE: 3}
