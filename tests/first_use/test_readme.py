"""The README: its commands work in the order in which they stand."""

import re
from pathlib import Path

import pytest

from tests.conftest import PROJECT
from tests.first_use.conftest import PASSWORD, counted
from tests.first_use.pages import blocks, checkout, commands, execute
from tests.world import World

pytestmark = [pytest.mark.stack, pytest.mark.airflow, pytest.mark.timeout(3600)]

README = PROJECT / "README.md"
ITSELF = "make test"


def test_the_start_works_in_a_fresh_checkout(tmp_path: Path) -> None:
    """The demonstration, then the servers without it, up to their end; nothing warns."""
    folder = checkout(tmp_path / "a checkout")
    lines = [
        line
        for language, text in blocks(README, "## Start")
        if language == "console"
        for line in commands(text)
    ]
    lines.remove(ITSELF)
    lines.insert(lines.index("tally up"), "tally up")  # the second call says the same again
    try:
        said = execute(lines, folder, {})
    finally:  # also after a command that fails, the servers are ended
        execute([".tally/venv/bin/tally down"], folder, {})
    assert said.count("user admin, password") == 3
    assert said.count("next:  echo") == 2
    assert said.count("kafka: topic alog created") <= 1
    assert "the producer's own count: equal" in said
    assert "0 failed, 0 to look at" in said
    assert "stopped: airflow, spark, mysql, kafka" in said
    assert re.findall(r"(?m)^.*WARNING.*$|^WARN .*$", said) == []


def test_own_servers_are_counted_as_the_readme_says(
    world: World, own_servers: dict[str, str], tmp_path: Path
) -> None:
    """With its configuration, and the addresses of real servers."""
    world.produce(["2026-01-31 23:59:59 ERROR a line"], 0)
    page = blocks(README, "## With your own servers")
    ((_, settings),) = [block for block in page if block[0] == "toml"]
    ((_, shown),) = [block for block in page if block[0] == "console"]
    folder = tmp_path / "own folder"
    folder.mkdir()
    (folder / "tally.toml").write_text(settings, encoding="utf-8")
    execute(
        [line.replace("…", PASSWORD) for line in commands(shown)],
        folder,
        own_servers
        | {
            "PATH": f"{PROJECT / '.tally/venv/bin'}:/usr/local/bin:/usr/bin:/bin",
            "TALLY_SPARK__JARS_DIR": str(world.stack.jars_dir),
        },
    )
    assert counted(world) == {"2026-01-31 23:59": 1}
