"""What a page of the console is asked for, and what it shows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tally.airflow.console.tables import Table
from tally.context import Context
from tally.errors import UsageError
from tally.model import TopicPartition
from tally.reading.dead_letters import read_partition
from tally.status.surroundings import Surroundings

ROWS: Final = 50
"""Rows of a page of a table."""
ROWS_MAX: Final = 500
"""Rows of an export, and of a page whose address asks for more."""

_YEARS: Final = range(1000, 9999)

SPANS: Final = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}


class Query(dict[str, str]):
    """The parameters of an address; one that is empty is as one that is not there.

    Each method that reads one raises a UsageError when its text is not what is read.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in given.items() if value})

    def span(self) -> dict[str, Any]:
        """The span of a chart, as arguments of :func:`tally.reading.minutes.minutes`."""
        name = self.get("span", "1h")
        if name not in SPANS:
            known = ", ".join(SPANS)
            raise UsageError(f"span = {name!r} is not known", next_step=f"one of {known}")
        first, last = self.moment("first"), self.moment("last")
        return {"span": SPANS[name], "first": first, "last": last}

    def limit(self) -> int:
        """Rows that are asked for, bounded."""
        usual = ROWS_MAX if self.get("export") else ROWS
        return min(max(self.number("limit") or usual, 1), ROWS_MAX)

    def number(self, name: str) -> int | None:
        """A whole number; None without one."""
        text = self.get(name, "").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise UsageError(f"{name} = {text!r} is not a whole number", next_step="such as 42")
        return int(text)

    def one_of(self, name: str, known: Any) -> Any:
        """One of the values of an enumeration; None without one."""
        text = self.get(name, "").strip()
        if text and text not in list(known):
            names = ", ".join(known)
            raise UsageError(f"{name} = {text!r} is not known", next_step=f"one of {names}")
        return known(text) if text else None

    def partition(self) -> TopicPartition | None:
        """A partition, ``alog/0``; None without one."""
        text = self.get("partition", "").strip()
        return read_partition(text, "partition") if text else None

    def moment(self, name: str, *, needed: bool = False, zone: bool = False) -> Any:
        """A time, as browsers write it: ``2026-11-20T14:05``.

        Args:
            name: Its parameter.
            needed: Whether an empty one is an error.
            zone: Whether it is a time of the machines', UTC unless it says otherwise; else it is a
                minute on the lines' own clock.
        """
        text = self.get(name, "").strip()
        if not text and not needed:
            return None
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{name} = {text!r} is not a time", next_step="such as 2026-11-20T14:05"
            ) from None
        if found.year not in _YEARS:
            raise UsageError(
                f"{name} = {text!r} is far away",
                next_step=f"a year from {_YEARS[0]} to {_YEARS[-1]}",
            )
        if zone:
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        if found.tzinfo is not None:
            raise UsageError(
                f"{name} = {text!r} has a zone",
                next_step="leave it out: lines have their own clock",
            )
        return found.replace(second=0, microsecond=0)

    def without(self, name: str) -> dict[str, str]:
        """The parameters but one, from the first row on."""
        return {key: value for key, value in self.items() if key not in {name, "skip"}}


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a page of a pipeline is asked for."""

    ctx: Context
    """Where it reads."""
    pipeline: str
    """The pipeline."""
    query: Query
    """The parameters of its address."""
    path: Query
    """The variable parts of its path."""
    user: Any
    """Who asks."""
    surroundings: Callable[[], Surroundings]
    """Asks what is known of Airflow and of the engine."""


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
