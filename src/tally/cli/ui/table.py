"""Tables for people: columns of whole words."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tally.cli.ui.values import moment, number, shortened
from tally.formatting import ABSENT
from tally.reading.columns import COUNT, OFFSET, TEXT, Column

__all__ = ["NUMBERS", "TEXT", "cell", "laid_out"]

_GAP: Final = 2
NUMBERS: Final = frozenset({COUNT, OFFSET})

STYLES: Final[Mapping[str, str]] = {
    "committed": "green",
    "committed, replaced": "dim",
    "committed, partly replaced": "green",
    "planned": "yellow",
    "abandoned": "dim",
    "open": "bold red",
    "done": "green",
    "cancelled": "dim",
    "ok": "green",
    "warn": "yellow",
    "FAIL": "bold red",
}


def laid_out(
    console: Console,
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    texts: Sequence[str] = (),
) -> list[str]:
    """The lines of a table that fits a console; wider than it where whole words do not fit.

    Args:
        console: Its width, which is raised to what whole words need, and whether it has colours.
        headers: One for each column.
        rows: Cells that print.
        numbers: Headers of the columns that are aligned to the right.
        texts: Headers of the columns that may be broken between words.
    """
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    needed = -_GAP  # the last column has none
    for at, header in enumerate(headers):
        cells = [header, *(row[at] for row in rows)]
        pieces = [word for cell in cells for word in cell.split()] if header in texts else cells
        width = max(map(cell_len, pieces), default=0)
        needed += width + _GAP
        table.add_column(
            header,
            justify="right" if header in numbers else "left",
            min_width=width,
            no_wrap=header not in texts,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    console.width = max(console.width, needed)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def cell(column: Column, record: Any) -> str:
    """What a terminal shows of a record in a column."""
    value = column.value(record)
    if isinstance(value, datetime):
        return moment(value, zone="" if "(UTC)" in column.header else " UTC")
    if isinstance(value, int) and column.kind is COUNT:
        return number(value)
    text = ABSENT if value is None else str(value)
    return text if column.width is None else shortened(text, column.width)
