"""Pages of the documentation, executed as a reader would execute them."""

import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.servers import PROJECT

FOREIGN: Final = ("AIRFLOW", "_AIRFLOW", "TALLY_", "SPARK_", "PYSPARK_", "PYTHON", "PYTEST")
"""Variables of the test session, which a reader does not have, begin like this."""

FENCE: Final = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, heading: str = "") -> list[tuple[str, str]]:
    """Language and text of the code blocks of a page, or of the section with a ``## heading``."""
    text = page.read_text(encoding="utf-8")
    if heading:
        assert f"\n{heading}\n" in text
        text = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    return FENCE.findall(text)


def commands(block: str) -> list[str]:
    """What stands after the prompts of a block, without comments."""
    lines = block.splitlines()
    assert all(line.startswith("$ ") for line in lines), "a block of commands shows no output"
    return [re.split(r"\s+# ", line.removeprefix("$ "))[0].rstrip() for line in lines]


def execute(lines: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run the lines in one shell, which ends with the first one that fails; returns the output."""
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-x", "-c", "\n".join(lines)],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)} | {**environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    (folder.parent / f"{folder.name}.log").write_text(ended.stdout, encoding="utf-8")
    assert ended.returncode == 0, ended.stdout[-6000:]
    return ended.stdout


def checkout(folder: Path) -> Path:
    """A copy of this checkout with its set-up, and without its servers and their data."""
    path = str(PROJECT / "requirements" / "bootstrap.py")
    # The set-up must be complete: the copy's would change what both share.
    assert runpy.run_path(path)["_is_complete"](), "make setup"
    generated = (".git", ".tally", ".*_cache", ".hypothesis", "__pycache__", "build", "dist")
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns(*generated, "*.egg-info"))
    (folder / ".tally").mkdir(mode=0o700)
    shutil.copy(PROJECT / ".tally" / "setup.stamp", folder / ".tally")
    for name in ("venv", "downloads"):
        (folder / ".tally" / name).symlink_to(PROJECT / ".tally" / name)
    return folder
