"""Commands that other installed packages add to ``tally``.

A package announces an :class:`Extension` under the entry point group ``tally.cli``. Tally itself
imports no such package: a production install has none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Final

GROUP: Final = "tally.cli"

Sections = Mapping[str, Mapping[str, tuple[str, str]]]
"""By section and command: the module that defines the command, and one line of help."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """The commands that one package adds."""

    sections: Sections
    """Its commands; a command's module is loaded when the command is called."""
    hints: str
    """A module of it with two functions, which get the :class:`tally.cli.app.App` of the command:
    ``say_what_starts_them(app, error)`` may give the error of a server that did not answer a better
    next step; ``airflow_environment(app)`` returns the environment variables which say where the
    package's own Airflow is, none if it has none."""


@cache
def extensions() -> tuple[Extension, ...]:
    """All installed extensions, in order of their names."""
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(point.load() for point in found)
