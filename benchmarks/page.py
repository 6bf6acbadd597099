"""Results in ``docs/performance.md``: each table stands between two marks of its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A result as it stands in the documentation."""

    name: str
    """The name of its place on the page."""
    headers: Sequence[str]
    """The first column has names, the others numbers."""
    rows: Sequence[Sequence[str]]
    """Cells, formatted."""

    def lines(self) -> list[str]:
        """The table in Markdown."""
        head = f"| {' | '.join(self.headers)} |"
        ruler = f"|---|{'---:|' * (len(self.headers) - 1)}"
        return [head, ruler, *(f"| {' | '.join(row)} |" for row in self.rows)]


def put(table: Table, page: Path = PAGE) -> None:
    """Replace a table of the page.

    Raises:
        LookupError: The page has no place for it.
    """
    text = page.read_text(encoding="utf-8")
    lines = "\n".join(table.lines())
    new, found = re.subn(
        _place(table.name), lambda match: f"{match[1]}\n{lines}\n{match[3]}", text, flags=re.DOTALL
    )
    if found != 1:
        raise LookupError(f"{page} has {found} places for the table {table.name}")
    page.write_text(new, encoding="utf-8")


def get(name: str, page: Path = PAGE) -> Table:
    """A table as it stands on the page.

    Raises:
        LookupError: The page has no such table.
    """
    match = re.search(_place(name), page.read_text(encoding="utf-8"), flags=re.DOTALL)
    rows = [_cells(line) for line in match[2].strip().splitlines()] if match else []
    if len(rows) < 3:  # headers, a ruler, and something to show
        raise LookupError(f"{page} has no table {name}")
    return Table(name=name, headers=rows[0], rows=rows[2:])


def _place(name: str) -> str:
    return rf"(<!-- benchmark {re.escape(name)} -->)\n(.*?)(<!-- end -->)"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
