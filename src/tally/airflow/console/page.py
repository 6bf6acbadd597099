"""A page of the console."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tally.airflow.console.tables import Table
from tally.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page of the console."""

    template: str
    """The file that draws it."""
    title: str
    """Its heading."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """What the template shows."""
    tables: tuple[Table, ...] = ()
    """Its tables, which can be exported."""

    def table(self, name: str) -> Table:
        """A table of the page by its name.

        Raises:
            UsageError: It has none of that name.
        """
        found = next((table for table in self.tables if table.name == name), None)
        if found is None:
            known = ", ".join(table.name for table in self.tables) or "no tables"
            raise UsageError(f"this page has no table {name!r}", next_step=f"it has: {known}")
        return found
