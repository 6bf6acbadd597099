"""Commands that other installed packages add to ``tally``.

A package announces an :class:`Extension` under the entry point group ``tally.cli``. Tally itself
imports no such package: a production install has none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

GROUP: Final = "tally.cli"

Sections = Mapping[str, Mapping[str, tuple[str, str]]]
"""By section and command: the module that defines the command, and one line of help."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """The commands that one package adds."""

    sections: Sections
    """Its commands; a command's module is loaded when the command is called."""
    unanswered: str
    """``module:function`` that is called when a server does not answer, and may give the error a
    better next step. Called with :class:`tally.cli.app.App` and the error."""
    airflow: str
    """``module:function`` that returns environment variables which say where the package's own
    Airflow is, none if it has none. Called with :class:`tally.cli.app.App`."""


@cache
def extensions() -> tuple[Extension, ...]:
    """All installed extensions, in order of their names."""
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(point.load() for point in found)


def airflow_environment(app: object) -> dict[str, str]:
    """Variables that say where the Airflow of an extension is; none without one.

    Args:
        app: The :class:`tally.cli.app.App` of the command.
    """
    found: dict[str, str] = {}
    for extension in extensions():
        found |= load(extension.airflow)(app)
    return found


def load(reference: str) -> Callable[..., Any]:
    """The function that ``module:function`` names."""
    function: Callable[..., Any] = EntryPoint(name="", value=reference, group="").load()
    return function
