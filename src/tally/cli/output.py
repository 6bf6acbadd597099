"""Where the command line writes: results to stdout, everything else to stderr.

On a terminal tables have colour and fit its width, by breaking texts between words, or else they
are as wide as their content; piped, they are plain text as wide as their content, so that a line is
a row. Nothing is cut. Whatever does not print is escaped on the way.

Counts have separators between thousands. Offsets have none, so that they can be pasted into the
next command.
"""

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from tally.formatting import ABSENT, continued, plural, printable
from tally.views import View, document

if TYPE_CHECKING:  # slow to import; only tables and bars need it
    from rich.console import Console, JustifyMethod

    from tally.reading.columns import Column

PIPED_WIDTH: Final = 1_000_000
_INDENT: Final = " " * 6
"""As wide as a label and the gap after it."""
_ROOM_LEAST: Final = 20
_COMMAND: Final = ": tally "
"""What stands before the arguments of a command that ends a sentence."""

_GAP: Final = 2
"""Blanks between two columns."""
_STYLES: Final = {
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


class Meter(Protocol):
    """Is called with how much of something is done."""

    def update(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` is done."""

    def clear(self) -> None:
        """Show nothing until the next update, which is about something else."""


def stdout_console() -> "Console":
    """Stdout: as wide as the terminal, or wide enough for everything."""
    from rich.console import Console  # noqa: PLC0415 - only tables and bars need it

    terminal = sys.stdout.isatty()
    return Console(force_terminal=terminal, width=None if terminal else PIPED_WIDTH)


class Output:
    """The two streams of one command.

    Args:
        as_json: Whether stdout carries one JSON document instead of text for people, which then
            goes nowhere.
        open_console: Makes the console for which tables are laid out.
    """

    def __init__(
        self, *, as_json: bool = False, open_console: "Callable[[], Console]" = stdout_console
    ) -> None:
        self.as_json = as_json
        self.wide = False
        """Whether tables have all columns and are as wide as their content."""
        self._open_console = open_console
        self._has_document = False
        self._say: Callable[[str], None] = partial(click.echo, err=True)

    def document(self, value: View | Mapping[str, Any]) -> None:
        """Write the command's result with ``--json``: the first is the only one."""
        if self.as_json and not self._has_document:
            self._has_document = True
            click.echo(json.dumps(document(value), indent=2))

    def line(self, text: str = "") -> None:
        """A line of the result, as text."""
        self._write([_safe(text)])

    def labelled(self, health: str, text: str, next_step: str = "", indent: int = 6) -> None:
        """A sentence of the result that begins with a coloured health, and what to do about it.

        On a terminal it is broken between words; the next step, which is copied, has a line.
        """
        label, lines = health_label(health), self._broken(text, len(_INDENT))
        style = _STYLES.get(label, "")
        colour, is_bold = style.removeprefix("bold ") or None, style.startswith("bold ") or None
        shown = click.style(f"{label:4}", fg=colour, bold=is_bold)
        self._write([f"{shown}  " + f"\n{_INDENT}".join(lines)])
        if next_step:
            self.line(f"{'':{indent}}next: {next_step}")

    def sentence(self, text: str) -> None:
        """A sentence of the result, on a terminal broken between words.

        A command of Tally that it ends with stays whole, to be copied, on a line of its own.
        """
        lines = self._broken(text)
        if len(lines) > 1 and _COMMAND in text:
            sentence, _, arguments = text.rpartition(_COMMAND)
            lines = [*self._broken(f"{sentence}:"), f"  tally {_safe(arguments)}"]
        self._write(lines)

    def _write(self, lines: Iterable[str]) -> None:
        if not self.as_json:
            for line in lines:
                click.echo(line)

    def _broken(self, text: str, taken: int = 0) -> list[str]:
        """The lines of a text: those that fit beside what is taken of a terminal, or one."""
        console, text = self._open_console(), _safe(text)
        if self.wide or not console.is_terminal:
            return [text]
        room = max(console.width - taken, _ROOM_LEAST)
        return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)

    def records(self, columns: "Iterable[Column]", records: Iterable[Any]) -> None:
        """A table of records, with those of the columns that a terminal shows.

        Without any record ``none`` stands below the headers.
        """
        if self.as_json:
            return
        from rich.cells import cell_len  # noqa: PLC0415 - only tables need rich
        from rich.table import Table  # noqa: PLC0415 - as above
        from rich.text import Text  # noqa: PLC0415 - as above

        from tally.reading.columns import COUNT, OFFSET, TEXT  # noqa: PLC0415 - brings the ledger

        console = self._open_console()
        breaks = console.is_terminal and not self.wide
        shown = [one for one in columns if one.header and (self.wide or not one.wide)]
        printed = [
            [printable(_cell(one, record, is_count=one.kind is COUNT)) for one in shown]
            for record in records
        ]
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        needed = -_GAP  # the last column has none
        for at, column in enumerate(shown):
            is_text = breaks and column.kind is TEXT
            cells = [column.header, *(row[at] for row in printed)]
            pieces = [word for cell in cells for word in cell.split()] if is_text else cells
            width = max(map(cell_len, pieces), default=0)
            needed += width + _GAP
            justify: JustifyMethod = "right" if column.kind in {COUNT, OFFSET} else "left"
            table.add_column(column.header, justify=justify, min_width=width, no_wrap=not is_text)
        for row in printed:
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        console.width = max(console.width, needed)  # where whole words do not fit
        with console.capture() as captured:
            console.print(table)
        self._write(line.rstrip() for line in captured.get().splitlines())  # as it is padded
        if not printed:
            self.line("none")

    def left_out(self, rows: int) -> None:
        """Say how many rows of a table are not shown, if there are any."""
        if rows > 0:
            self.line(f"and {rows:,} more: --json has all of them")

    def note(self, text: str) -> None:
        """Report something to stderr while it happens; not part of the result."""
        self._say(_safe(text))

    def problem(self, code: str, what: str, next_step: str) -> None:
        """Write an error to stderr: its code and sentence, and on a second line the next step."""
        click.echo(f"{click.style(code, fg='red', bold=True)}: {_safe(what)}", err=True)
        if next_step:
            click.echo(f"{click.style('next', bold=True)}: {_safe(next_step)}", err=True)

    @contextmanager
    def progress(self, what: str, unit: str, *, elsewhere: bool = True) -> Iterator[Meter]:
        """Show progress: a bar on a terminal, a line for each tenth elsewhere.

        Args:
            what: What is done.
            unit: Of what is counted.
            elsewhere: Whether to write these lines where there is no terminal.
        """
        if not sys.stderr.isatty():
            yield _LineMeter(self.note if elsewhere else None, what, unit)
            return
        from tally.cli.bar import bar  # noqa: PLC0415 - only tables and bars need it

        before = self._say
        with bar(what, unit) as meter:
            self._say = meter.say
            try:
                yield meter
            finally:
                self._say = before


class _LineMeter:
    def __init__(self, note: Callable[[str], None] | None, what: str, unit: str) -> None:
        self._note, self._what, self._unit = note, what, unit
        self._tenth = 0

    def update(self, done: int, total: int) -> None:
        tenth = 10 if done >= total else done * 10 // total
        if tenth > self._tenth and self._note:
            self._tenth = tenth
            self._note(f"{self._what}: {done:,} of {total:,} {self._unit}")

    def clear(self) -> None:
        self._tenth = 0


def _safe(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def _cell(column: "Column", record: Any, *, is_count: bool) -> str:
    """What a terminal shows of a record in a column."""
    value = column.value(record)
    if isinstance(value, datetime):
        return moment(value, zone="" if "(UTC)" in column.header else " UTC")
    if isinstance(value, int) and is_count:
        return number(value)
    text = ABSENT if value is None else str(value)
    return text if column.width is None else shortened(text, column.width)


def health_label(health: str) -> str:
    """A health as a terminal names it: a failure is to be seen."""
    return "FAIL" if health == "fail" else str(health)


def number(value: int | None) -> str:
    """``1,234``; a dash for nothing."""
    return ABSENT if value is None else f"{value:,}"


def moment(value: datetime | None, *, zone: str = " UTC") -> str:
    """``2026-11-20 14:00:00 UTC``; a dash for nothing.

    Args:
        value: With its zone.
        zone: What follows; empty where a column's header says it.
    """
    return ABSENT if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}{zone}"


def sums(total: Any) -> str:
    """``5 records, 3 matched, 1 malformed``, and how many were left out as continuation lines.

    Args:
        total: What was found, or a committed batch.
    """
    return (
        f"{plural(total.records, 'record')}, {total.matched:,} matched, "
        f"{total.malformed:,} malformed{continued(total.continuations)}"
    )


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it is wider than ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"
