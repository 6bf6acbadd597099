"""What a page of the console is asked for, and what it shows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import quote

from fastapi import status

from tally.airflow.console.runs import surroundings_now
from tally.context import Context
from tally.errors import UsageError
from tally.reading.columns import Cell, Column
from tally.status.status import Statuses

ROWS: Final = 50
"""Rows of a page of a table."""
ROWS_MAX: Final = 500
"""Rows of an export of such a table."""
SHOWN_MAX: Final = 500
"""Rows of a table that a page shows; an export has all."""

TO_BATCH: Final = {"batch_id": "batches/{}"}
TO_RECORD: Final = "record?partition={partition}&offset={}"
"""Links of tables."""

_YEARS: Final = range(1000, 9999)

Name = TypeVar("Name", bound=str)


class Query(dict[str, str]):
    """The parameters of an address; one that is empty is as one that is not there.

    Each method that reads one raises a UsageError when its text is not what is read.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__({key: value for key, value in given.items() if value})

    def limit(self) -> int:
        """How many rows of a list are read."""
        return ROWS_MAX if self.get("export") else ROWS

    def number(self, name: str) -> int | None:
        """A whole number; None without one."""
        text = self.get(name, "").strip()
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise UsageError(f"{name} = {text!r} is not a whole number", next_step="such as 42")
        return int(text)

    def one_of(self, name: str, known: Iterable[Name]) -> Name | None:
        """One of the names that are known, such as an enumeration's; None without one."""
        text = self.get(name, "").strip()
        found = next((one for one in known if one == text), None)
        if text and found is None:
            names = ", ".join(known)
            raise UsageError(f"{name} = {text!r} is not known", next_step=f"one of {names}")
        return found

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a page is asked for."""

    ctx: Context
    """Where it reads."""
    pipeline: str
    """The pipeline; empty for a page of several."""
    asks_kafka: bool
    """Whether Kafka is asked, too; a page of the ledger does not wait for it."""
    readable: Sequence[str]
    """The pipelines that the user may see."""
    query: Query
    """The parameters of its address."""
    path: Query
    """The variable parts of its path."""
    user: Any
    """Who asks."""
    may_read_lines: bool
    """Whether who asks may see the bytes of records, not only counts."""

    @property
    def statuses(self) -> Statuses:
        """Asks for the status of pipelines; Airflow and the engine are asked each time."""
        around = surroundings_now(self.ctx.settings)
        return Statuses(ctx=self.ctx, ask_kafka=self.asks_kafka, surroundings=around)


@dataclass
class Table:
    """Rows of equal shape, drawn by one template and exported as they are drawn.

    Attributes:
        rows: What the columns have of each record, by key.
    """

    name: str
    """Names the table in the address of an export."""
    title: str
    """Its caption."""
    columns: Sequence[Column]
    """Those that a page shows."""
    records: InitVar[Iterable[Any]]
    """What the rows are of."""
    links: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """By column: the address behind its cells, with ``{}`` for the cell, and ``{name}`` for that of
    another column."""
    empty: str = field(default="none", kw_only=True)
    """What is shown instead of no rows."""

    def __post_init__(self, records: Iterable[Any]) -> None:
        self.columns = [column for column in self.columns if column.title]
        self.rows: list[Mapping[str, Cell]] = [
            {column.key: column.value(one) for column in self.columns} for one in records
        ]

    def link(self, column: Column, row: Mapping[str, Cell]) -> str:
        """The address behind a cell; empty for none."""
        cell = row[column.key]
        if column.key not in self.links or cell is None:
            return ""
        quoted = {key: quote(str(value)) for key, value in row.items()}
        return self.links[column.key].format(quote(str(cell)), **quoted)

    @property
    def shown(self) -> Sequence[Mapping[str, Cell]]:
        """The rows that a page shows."""
        return self.rows[:SHOWN_MAX]

    def is_number(self, column: Column) -> bool:
        """Whether a column holds numbers, which stand to the right."""
        cells = [row[column.key] for row in self.rows]
        return any(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page of the console shows."""

    title: str
    """Its heading."""
    values: Mapping[str, Any]
    """What its template shows."""
    tables: Sequence[Table] = ()
    """Its tables, which can be exported."""
    code: int = status.HTTP_200_OK
    """The status of the answer."""

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
