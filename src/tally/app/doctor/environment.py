"""Checks of Python and of the environment variables."""

import difflib
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from pydantic import BaseModel

from tally.app.doctor.diagnosis import Diagnosis, fail, ok, warn
from tally.config.loading import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.config.settings import Settings

OLDEST_PYTHON: Final = (3, 11)
PREFIX: Final = "TALLY_"

# Read by Tally, but not settings: the configuration's path, and the token of the local stack's
# processes.
OTHER_VARIABLES: Final = frozenset({CONFIG_VARIABLE, SECRETS_VARIABLE, "TALLY_STACK_TOKEN"})


def check_python() -> Diagnosis:
    """Whether this Python is new enough."""
    version = platform.python_version()
    if sys.version_info[:2] < OLDEST_PYTHON:
        return fail("python.version", version, "install Python 3.11 or newer")
    return ok("python.version", version)


def check_variables() -> Diagnosis:
    """Whether every ``TALLY_`` variable is known: a misspelt one would have no effect."""
    unknown = list(unknown_variables(os.environ))
    if unknown:
        return warn(
            "config.variables",
            f"no setting has the name {', '.join(unknown)}",
            "; ".join(_advice(name) for name in unknown),
        )
    mine = sum(name.upper().startswith(PREFIX) for name in os.environ)
    return ok("config.variables", f"{mine} set" if mine else "none set")


def unknown_variables(names: Iterable[str]) -> Iterator[str]:
    """The ``TALLY_`` variables that no setting reads, in order.

    Below a section that exists, loading the configuration refuses an unknown key.
    """
    for name in sorted(names):
        if not name.upper().startswith(PREFIX) or name.upper() in OTHER_VARIABLES:
            continue
        section = name[len(PREFIX) :].split("__")[0].lower()
        if section not in Settings.model_fields:
            yield name


def _advice(name: str) -> str:
    close = difflib.get_close_matches(name.upper(), _known_variables(), n=1, cutoff=0.75)
    return f"{name}: did you mean {close[0]}?" if close else f"unset {name}"


def _known_variables() -> list[str]:
    known = sorted(OTHER_VARIABLES)
    for section, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys = field.annotation.model_fields
            known += [f"{PREFIX}{section.upper()}__{key.upper()}" for key in keys]
    return known
