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
"""Section, command, then the module that defines it and one line of help."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """What one package adds."""

    sections: Sections
    """Its commands; their modules are loaded when a command is asked for."""
    unanswered: str
    """``module:function`` that is told of a server that does not answer, and may name a better
    next step. Called with :class:`tally.cli.app.App` and the error."""


@cache
def extensions() -> tuple[Extension, ...]:
    """All installed extensions, in order of their names."""
    found = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(point.load() for point in found)
