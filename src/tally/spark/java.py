"""The machine's Java: Kafka, Spark and Ivy run on it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tally.errors import StackError

OLDEST = 17
JAVA_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""Java encodes file names as the locale says: in the C locale it finds no folder with an umlaut."""
_NEXT_STEP = (
    f"install Java {OLDEST} or newer (Debian and Ubuntu: apt-get install "
    "openjdk-17-jre-headless) or point JAVA_HOME at one"
)


def java() -> str:
    """The path of a Java that is new enough: JAVA_HOME's if that is set, else the one on PATH.

    Raises:
        StackError: There is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if program is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise StackError(f"no java {where}", next_step=_NEXT_STEP)
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise StackError(f"cannot run {program}: {error}", next_step=_NEXT_STEP) from error
    version = major_version(answer.stderr)
    if version is None or version < OLDEST:
        said = answer.stderr.strip().partition("\n")[0] or f"exit code {answer.returncode}"
        raise StackError(f"{program} is not Java {OLDEST} or newer: {said}", next_step=_NEXT_STEP)
    return program


def major_version(text: str) -> int | None:
    """The major version in the answer of ``java -version``; None if there is none.

    ``"17.0.15"`` is 17, ``"21-ea"`` is 21, ``"1.8.0_402"`` is 8.
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
