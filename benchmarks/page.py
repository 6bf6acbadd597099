"""Results as tables in ``docs/performance.md``, and on the terminal."""

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A result as it stands in the documentation."""

    name: str = ""
    """The name of its place on a page, between two marks; '' for one that is only printed."""
    headers: Sequence[str]
    """The first column has names, the others numbers."""
    rows: Sequence[Sequence[str]]
    """Cells, formatted."""

    def __str__(self) -> str:
        """The table in Markdown."""
        head = f"| {' | '.join(self.headers)} |"
        ruler = f"|---|{'---:|' * (len(self.headers) - 1)}"
        return "\n".join([head, ruler, *(f"| {' | '.join(row)} |" for row in self.rows)])


def command(measure: Callable[..., Iterable[Table]]) -> int:
    """Run a benchmark with the options of the command line, and print its tables.

    Args:
        measure: The benchmark. Each of its parameters is an option, with the same default.

    Returns:
        The exit code; a benchmark that fails raises an error.
    """
    parser = argparse.ArgumentParser(description=inspect.getdoc(inspect.getmodule(measure)))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for name, parameter in inspect.signature(measure).parameters.items():
        default = parameter.default
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(default, tuple):
            parser.add_argument(f"--{name}", type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default)
    for table in measure(**vars(parser.parse_args())):
        say(f"\n{table}")
    return 0


def say(message: str) -> None:
    """Print a line at once."""
    print(message, flush=True)


def put(table: Table, page: Path = PAGE) -> None:
    """Replace a table of the page.

    Raises:
        LookupError: The page has no place for it.
    """
    text = page.read_text(encoding="utf-8")
    new, found = re.subn(
        _place(table.name), lambda match: f"{match[1]}\n{table}\n{match[3]}", text, flags=re.DOTALL
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
