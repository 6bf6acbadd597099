"""Where the command line writes: results to stdout, everything else to stderr.

On a terminal tables have colour and fit its width, by breaking texts between words, or else they
are as wide as their content; piped, they are plain text as wide as their content, so that a line is
a row. Nothing is cut. Whatever does not print is escaped on the way.
"""

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from tally.errors import TallyError
from tally.formatting import printable
from tally.views import View, document

if TYPE_CHECKING:  # slow to import; only tables and bars need it
    from rich.console import Console

    from tally.reading.columns import Column

Shown = TypeVar("Shown", bound=View)

PIPED_WIDTH: Final = 1_000_000
_INDENT: Final = " " * 6
"""As wide as a label and the gap behind it."""
_ROOM_LEAST: Final = 20
_COMMAND: Final = ": tally "
"""What stands before the arguments of a command that ends a sentence."""

_LABEL_STYLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "ok": {"fg": "green"},
    "warn": {"fg": "yellow"},
    "FAIL": {"fg": "red", "bold": True},
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
    return Console(
        file=sys.stdout,
        force_terminal=terminal,
        width=None if terminal else PIPED_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )


class Output:
    """The two streams of one command.

    Args:
        as_json: Whether stdout carries one JSON document instead of text.
        open_console: Makes the console for which tables are laid out.
    """

    def __init__(
        self, *, as_json: bool = False, open_console: "Callable[[], Console]" = stdout_console
    ) -> None:
        self.as_json = as_json
        self.wide = False
        """Whether tables have all columns and are as wide as their content."""
        self._open_console = open_console
        self.has_document = False
        self._say: Callable[[str], None] = partial(click.echo, err=True)

    def document(self, value: Mapping[str, Any]) -> None:
        """Write the command's result as JSON; once."""
        self.has_document = True
        click.echo(json.dumps(value, indent=2))

    def view(self, view: View) -> None:
        """Write the command's result as JSON; once."""
        self.document(document(view))

    def result(self, view: Shown, show: "Callable[[Output, Shown], None]") -> None:
        """Write the command's result: as JSON, or for people as ``show`` does."""
        if self.as_json:
            self.view(view)
        else:
            show(self, view)

    def line(self, text: str = "") -> None:
        """A line of the result, for people."""
        click.echo(_safe(text))

    def labelled(self, label: str, text: str) -> None:
        """A sentence of the result that begins with a coloured label.

        On a terminal it is broken between words; commands, which are copied, belong into lines.
        """
        text = f"\n{_INDENT}".join(self._broken(text, len(_INDENT)))
        click.echo(f"{click.style(f'{label:4}', **_LABEL_STYLES.get(label, {}))}  {text}")

    def sentence(self, text: str) -> None:
        """A sentence of the result, on a terminal broken between words.

        A command of Tally that it ends with stays whole, to be copied, on a line of its own.
        """
        lines = self._broken(text)
        if len(lines) > 1 and _COMMAND in text:
            sentence, _, arguments = text.rpartition(_COMMAND)
            lines = [*self._broken(f"{sentence}:"), f"  tally {_safe(arguments)}"]
        click.echo("\n".join(lines))

    def _broken(self, text: str, taken: int = 0) -> list[str]:
        """The lines of a text: those that fit beside what is taken of a terminal, or one."""
        console, text = self._open_console(), _safe(text)
        if self.wide or not console.is_terminal:
            return [text]
        room = max(console.width - taken, _ROOM_LEAST)
        return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)

    def table(
        self,
        headers: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        numbers: Sequence[str] = (),
        texts: Sequence[str] = (),
    ) -> None:
        """A table of the result, for people.

        Args:
            headers: One for each column.
            rows: Cells, already formatted; without any ``none`` stands below the headers.
            numbers: Headers of the columns that are aligned to the right.
            texts: Headers of the columns that may be broken between words.
        """
        from tally.cli.ui.table import laid_out  # noqa: PLC0415 - only tables need it

        console = self._open_console()
        one_line = self.wide or not console.is_terminal
        for line in laid_out(
            console,
            headers,
            [[printable(cell) for cell in row] for row in rows],
            numbers=numbers,
            texts=() if one_line else texts,
        ):
            click.echo(line.rstrip())  # the last column is padded
        if not rows:
            click.echo("none")

    def records(self, columns: "Sequence[Column]", records: Iterable[Any]) -> None:
        """A table of records, with those of the columns that a terminal shows."""
        from tally.cli.ui.table import NUMBERS, TEXT, cell  # noqa: PLC0415 - only tables need it

        shown = [one for one in columns if one.header and (self.wide or not one.wide)]
        self.table(
            [one.header for one in shown],
            [[cell(one, record) for one in shown] for record in records],
            numbers=[one.header for one in shown if one.kind in NUMBERS],
            texts=[one.header for one in shown if one.kind is TEXT],
        )

    def note(self, text: str) -> None:
        """Report something to stderr while it happens; not part of the result."""
        self._say(_safe(text))

    def problem(self, code: str, what: str, next_step: str) -> None:
        """Write an error to stderr: its code and sentence, and on a second line the next step."""
        click.echo(f"{click.style(code, fg='red', bold=True)}: {_safe(what)}", err=True)
        if next_step:
            click.echo(f"{click.style('next', bold=True)}: {_safe(next_step)}", err=True)

    def problems(self, errors: Mapping[str, TallyError]) -> None:
        """Write the error of each of several pipelines to stderr."""
        for name, error in errors.items():
            named = error.what.startswith((f"pipeline {name}", f"pipelines.{name}."))
            what = error.what if named else f"pipeline {name}: {error.what}"
            self.problem(error.code, what, error.next_step)

    @contextmanager
    def progress(self, what: str, unit: str, *, elsewhere: bool = True) -> Iterator[Meter]:
        """Show progress: a bar on a terminal, a line for each tenth elsewhere.

        Args:
            what: What is done.
            unit: Of what is counted.
            elsewhere: Whether to write these lines where there is no terminal.
        """
        if not sys.stderr.isatty():
            yield _LineMeter(self.note if elsewhere else _nobody, what, unit)
            return
        from tally.cli.ui.bar import bar  # noqa: PLC0415 - only tables and bars need it

        before = self._say
        with bar(what, unit) as meter:
            self._say = meter.say
            try:
                yield meter
            finally:
                self._say = before


def _nobody(_: str) -> None:
    """Says nothing."""


class _LineMeter:
    def __init__(self, note: Callable[[str], None], what: str, unit: str) -> None:
        self._note, self._what, self._unit = note, what, unit
        self._tenth = 0

    def update(self, done: int, total: int) -> None:
        tenth = 10 if done >= total else done * 10 // total
        if tenth > self._tenth:
            self._tenth = tenth
            self._note(f"{self._what}: {done:,} of {total:,} {self._unit}")

    def clear(self) -> None:
        self._tenth = 0


def _safe(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
