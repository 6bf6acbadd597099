"""Checks of Python."""

import platform
import sys
from typing import Final

from tally.app.doctor.diagnosis import Diagnosis, fail, ok

OLDEST_PYTHON: Final = (3, 11)


def check_python() -> Diagnosis:
    """Whether this Python is new enough."""
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return fail("python.version", version, "install Python 3.11 or newer")
    return ok("python.version", version)
