"""Tables of the console: drawn by one template, and exported as they are drawn."""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from tally.reading.columns import Cell, Column, row_of, titled

SHOWN_MAX: Final = 500
"""Rows of a table that a page shows; an export has all."""

# Where spreadsheets take what follows for a formula, whoever wrote it: at the beginning, also
# behind what is not seen, in the full width of East Asian keyboards, and behind a semicolon, which
# begins a cell in many countries. Signs alone are none, and a number is none.
_UNSEEN: Final = r"\s\u200b-\u200f\u2060\ufeff"
_SIGNS: Final = r"=+\-@\uff1d\uff0b\uff0d\uff20"
_FORMULA: Final = re.compile(
    r"^(?=[\t\r\n])"
    r"|(?:^|(?<=;))"
    rf"(?![{_UNSEEN}]*[+\-]?[0-9]+(?:[.,][0-9]+)?[{_UNSEEN}]*(?:;|$))"
    rf"(?=[{_UNSEEN}]*[{_SIGNS}][{_UNSEEN}{_SIGNS}]*[^;{_UNSEEN}{_SIGNS}])"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of equal shape."""

    name: str
    """Names the table in the address of an export."""
    title: str
    """Its caption."""
    columns: Sequence[Column]
    """Its columns."""
    rows: Sequence[Mapping[str, Cell]]
    """A value for each column's key; a missing one is empty."""
    links: Mapping[str, str] | None = None
    """By column: the address behind its cells, with the row's values in braces, percent-encoded."""
    empty: str = "none"
    """What is shown instead of no rows."""

    @classmethod
    def of(cls, columns: Sequence[Column], records: Iterable[Any], **more: Any) -> Self:
        """A table of records, with those of the columns that a page shows."""
        shown = titled(columns)
        return cls(columns=shown, rows=[row_of(shown, one) for one in records], **more)

    @property
    def shown(self) -> Sequence[Mapping[str, Cell]]:
        """The rows that a page shows."""
        return self.rows[:SHOWN_MAX]

    def is_number(self, column: Column) -> bool:
        """Whether a column holds numbers, which stand to the right."""
        return any(
            isinstance(row.get(column.key), int | float)
            and not isinstance(row.get(column.key), bool)
            for row in self.rows
        )


def as_csv(table: Table) -> str:
    """The table as CSV with a heading; a text is never a formula to a spreadsheet.

    Where it would be one, an apostrophe stands before it; :func:`as_json` has the text as it is.
    """
    text = io.StringIO()
    # In quotes a text that ends with signs is no formula with the next cell, behind any delimiter.
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        writer.writerow([_harmless(_plain(row.get(column.key))) for column in table.columns])
    return text.getvalue()


def as_json(table: Table) -> str:
    """The table as a JSON array of objects."""
    return json.dumps(
        [
            {column.key: _plain(row.get(column.key)) for column in table.columns}
            for row in table.rows
        ],
        indent=1,
    )


def _plain(cell: Cell) -> Any:
    return cell.isoformat() if isinstance(cell, datetime) else cell


def _harmless(cell: Any) -> Any:
    return _FORMULA.sub("'", cell) if isinstance(cell, str) else cell
