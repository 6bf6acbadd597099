"""Checks of Python."""

import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import Distribution, EntryPoints, distributions
from typing import Final

from tally.app.doctor.diagnosis import Diagnosis, fail, ok

OLDEST_PYTHON: Final = (3, 11)

COMMAND: Final = "tally"
PACKAGED: Final = re.compile(rf"^{COMMAND}/", re.MULTILINE)
"""A file of the package, in a distribution's list."""
OWN: Final = frozenset({"kafka-tally", "kafka-tally-local"})


def check_python() -> Diagnosis:
    """Whether this Python is new enough."""
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return fail("python.version", version, "install Python 3.11 or newer")
    return ok("python.version", version)


def check_distribution(path: Sequence[str] = sys.path) -> Diagnosis:
    """Whether the package and the command ``tally`` are this distribution's alone.

    The project ``tally`` on PyPI, for one, installs files under the same name.

    Args:
        path: Where installed distributions are looked for; that of this Python by default.
    """
    check = "python.distribution"
    others = sorted(
        {
            distribution.name
            for distribution in distributions(path=list(path))
            if distribution.name.lower().replace("_", "-") not in OWN
            and (
                any(point.name == COMMAND for point in _commands(distribution))
                or PACKAGED.search(distribution.read_text("RECORD") or "")
            )
        }
    )
    if others:
        names = " ".join(others)
        return fail(
            check,
            f"{', '.join(others)} is installed too, and claims the name {COMMAND} in this Python",
            f"pip uninstall {names}, then pip install --force-reinstall --no-deps kafka-tally",
        )
    return ok(check, "kafka-tally alone has the name tally")


def _commands(distribution: Distribution) -> EntryPoints:
    return distribution.entry_points.select(group="console_scripts")
