"""Tables on terminals that are wide enough, and on narrow ones."""

import io

import pytest
from rich.console import Console

from tally.cli.ui.output import Output
from tally.cli.ui.table import laid_out

HEADERS = ["ID", "STATE", "LINES"]
ROWS = [["1", "committed, partly replaced", "1,234"], ["22", "planned", "-"]]


def table(width: int, texts: tuple[str, ...] = ("STATE",)) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, no_color=True, width=width)
    lines = laid_out(console, HEADERS, ROWS, numbers=["ID", "LINES"], texts=texts)
    return [line.replace("\x1b[1m", "").replace("\x1b[0m", "").rstrip() for line in lines]


def test_a_table_is_as_wide_as_its_content() -> None:
    """Numbers end at one place."""
    assert table(80) == [
        "ID  STATE                       LINES",
        " 1  committed, partly replaced  1,234",
        "22  planned                         -",
    ]


def test_a_text_is_broken_between_words_where_the_terminal_is_narrow() -> None:
    """Words stay whole where they do not fit: the terminal breaks the lines then."""
    assert table(30) == [
        "ID  STATE                LINES",
        " 1  committed, partly    1,234",
        "    replaced",
        "22  planned                  -",
    ]
    for width in (1, 10, 20):
        assert table(width)[1:4] == [" 1  committed,  1,234", "    partly", "    replaced"]
    assert table(10, texts=()) == table(80)  # what is no text stays on one line


def test_extra_columns_are_for_those_who_ask(capsys: pytest.CaptureFixture[str]) -> None:
    """Piped as well, so that a script does not depend on where it runs."""
    out = Output()
    out.table(HEADERS, ROWS, extra=["STATE"])
    assert capsys.readouterr().out.splitlines()[0].split() == ["ID", "LINES"]
    out.wide = True
    out.table(HEADERS, ROWS, extra=["STATE"])
    assert capsys.readouterr().out.splitlines()[0].split() == HEADERS
