"""What is written where, and how: tables, sentences, progress, values, and the log."""

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from operator import itemgetter

import click
import pytest
from rich.console import Console

from tally.cli.output import Output, moment, number, shortened
from tally.formatting import printable, printable_bytes
from tally.logs import JsonFormatter, TextFormatter, about, is_worth_saying
from tally.reading.columns import COUNT, OFFSET, TEXT, WORD, Column

Captured = pytest.CaptureFixture[str]


def columns(headers: Sequence[str], *, counts: str = "", texts: str = "") -> list[Column]:
    """Columns of rows with a cell for each."""
    kinds = {counts: COUNT, texts: TEXT}
    return [
        Column(header, "", header, kinds.get(header, WORD), of=itemgetter(at))
        for at, header in enumerate(headers)
    ]


def test_a_piped_table_is_plain_text_and_nothing_is_cut(capsys: Captured) -> None:
    """A line is a row, however long, with no colour and no blanks at its end."""
    shown = columns(["A", "COUNT"], counts="COUNT")
    Output().records(shown, [["x" * 500, 1], ["committed", 1000]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "x" * 500 + "      1"
    assert lines[2] == "committed" + " " * 491 + "  1,000"
    assert not any("\x1b" in line or line != line.rstrip() for line in lines)
    Output().records(columns(["PARTITION", "RANGE"]), [])  # a list of nothing says so
    assert capsys.readouterr().out == "PARTITION  RANGE\nnone\n"
    Output().records(
        columns(["RANGE"]), [["[300, 310)"], ["[bold]x[/bold] :smile:"]]
    )  # text and no markup
    assert capsys.readouterr().out == "RANGE\n[300, 310)\n[bold]x[/bold] :smile:\n"


def test_what_does_not_print_is_escaped_everywhere(capsys: Captured) -> None:
    """Text from outside cannot move the cursor, wherever it is shown."""
    output = Output()
    output.records(columns(["VALUE"]), [["a\x1b[2Jb\nc"]])
    output.line("a\x1b[2Jb")
    output.note("a\x1b[2Jb")
    output.problem("code", "a\x1b[2Jb", "c\x07")
    out, err = capsys.readouterr()
    assert out == "VALUE\na\\x1b[2Jb\\nc\na\\x1b[2Jb\n"
    assert err == "a\\x1b[2Jb\ncode: a\\x1b[2Jb\nnext: c\\x07\n"
    output.problem("stack", "it crashed:\n    one\n    two", "")  # a server's last lines stay lines
    assert capsys.readouterr() == ("", "stack: it crashed:\n    one\n    two\n")
    value = {"value": "a\x1b\x9b\u202eb"}
    Output(as_json=True).document(value)  # it says what it was given
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == value


def narrow(*, terminal: bool = True, wide: bool = False) -> Output:
    output = Output(open_console=lambda: Console(width=40, force_terminal=terminal))
    output.wide = wide
    return output


def test_a_labelled_sentence_fits_the_terminal_in_whole_words(capsys: Captured) -> None:
    """Piped, or with --wide, it is one line."""
    text = "blocked: a_topic/0 committed offset 3, Kafka's first offset is now 1,000,000"

    def said(output: Output) -> str:
        output.labelled("warn", text)
        return click.unstyle(capsys.readouterr().out)

    lines = said(narrow()).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 40
    assert all(line.startswith("      ") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == f"warn {text}"
    assert said(narrow(terminal=False)) == said(narrow(wide=True)) == f"warn  {text}\n"


def test_a_command_that_ends_a_sentence_stays_whole(capsys: Captured) -> None:
    """So that it can be copied; a sentence that fits stays on its line, and so does a piped one."""
    command = "tally replay error_log --minute '2017-07-30 14:01' --reason '…'"

    def said(text: str, *, terminal: bool = True) -> list[str]:
        narrow(terminal=terminal).sentence(text)
        return capsys.readouterr().out.splitlines()

    text = f"4 minutes were counted under other rules; 2 can be replayed with: {command}"
    *lines, last = said(text)
    assert len(lines) == 2
    assert max(map(len, lines)) <= 40
    assert last == f"  {command}"
    assert said(text, terminal=False) == [text]
    assert said("more with: tally show 42") == ["more with: tally show 42"]


def test_progress_without_a_terminal_is_a_line_for_each_tenth(capsys: Captured) -> None:
    """A log file gets eleven lines at most, however often it is told."""
    with Output().progress("counting", "offsets") as meter:
        for done in range(2_001):
            meter.update(done, 2_000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "counting: 200 of 2,000 offsets"
    assert lines[-1] == "counting: 2,000 of 2,000 offsets"
    assert len(lines) == 10
    with Output().progress("counting", "offsets") as meter:
        meter.update(2_000, 2_000)
        meter.clear()  # what follows is about something else
        meter.update(10, 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["counting: 2,000 of 2,000 offsets", "counting: 10 of 100 offsets"]
    with Output().progress("counting", "offsets", elsewhere=False) as meter:
        meter.update(2_000, 2_000)  # a batch each minute would fill a log with it
    assert capsys.readouterr().err == ""


def test_bytes_are_text_where_they_print_and_escaped_where_not() -> None:
    """Every value is shown unambiguously: a backslash of the record is doubled."""
    texts: dict[bytes | None, str] = {
        b"plain \xe2\x82\xac": "plain €",
        b"\xff\xfe": "\\xff\\xfe",
        b"\x1b[31m": "\\x1b[31m",
        b"a\\x1b": "a\\\\x1b",
        b"a\r\n\tb\x00": "a\\r\\n\\tb\\x00",
        "\u202eevil".encode(): "\\u202eevil",
        b"": "",
        None: "-",
    }
    assert {value: printable_bytes(value) for value in texts} == texts


def test_numbers_have_separators_times_are_utc_and_a_cut_is_seen() -> None:
    """Counts are for reading; what is not known is a dash."""
    at = datetime(2026, 11, 20, 16, 0, 5, 120_000, tzinfo=timezone(timedelta(hours=2)))
    assert number(1234567) == "1,234,567"
    assert moment(at) == "2026-11-20 14:00:05 UTC"
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 6) == "abcde…"
    assert number(None) == moment(None) == printable(None) == "-"


HEADERS = ["ID", "STATE", "LINES"]
ROWS = [[1, "committed, partly replaced", 1234], [22, "planned", None]]


def table(capsys: Captured, width: int, texts: str = "STATE") -> list[str]:
    out = Output(open_console=lambda: Console(force_terminal=True, no_color=True, width=width))
    first, *others = columns(HEADERS, counts="LINES", texts=texts)
    out.records([replace(first, kind=OFFSET), *others], ROWS)
    return [click.unstyle(line).rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_table_is_as_wide_as_its_content_and_breaks_texts_between_words(capsys: Captured) -> None:
    """Words stay whole where they do not fit, and what is no text stays on one line."""
    wide = [
        "ID  STATE                       LINES",
        " 1  committed, partly replaced  1,234",
        "22  planned                         -",
    ]
    assert table(capsys, 80) == table(capsys, 10, texts="") == wide
    assert table(capsys, 30) == [
        "ID  STATE                LINES",
        " 1  committed, partly    1,234",
        "    replaced",
        "22  planned                  -",
    ]
    for width in (1, 10, 20):
        assert table(capsys, width)[1:4] == [" 1  committed,  1,234", "    partly", "    replaced"]


def test_extra_columns_are_for_those_who_ask(capsys: Captured) -> None:
    """Piped as well, so that a script does not depend on where it runs."""
    out = Output()
    described = [Column(name, "", name, wide=name == "STATE", of=len) for name in HEADERS]
    for out.wide, columns in ((False, ["ID", "LINES"]), (True, HEADERS)):
        out.records(described, ROWS)
        assert capsys.readouterr().out.splitlines()[0].split() == columns


def record(pathname: str = "/src/tally/pipeline/run.py", **fields: str) -> logging.LogRecord:
    made = logging.LogRecord("tally", logging.WARNING, pathname, 1, "not_mirrored", (), None)
    vars(made).update(fields)
    return made


def test_a_log_line_has_the_events_name_its_fields_and_its_traceback() -> None:
    """Nothing of logging's own; of the bridge to Java, Ctrl-C leaves no traceback."""
    line = TextFormatter().format(record(pipeline="first", cause="no answer"))
    assert line == "WARNING not_mirrored pipeline='first' cause='no answer'"
    made = record()
    made.exc_info = (ZeroDivisionError, ZeroDivisionError("oops"), None)
    lines = TextFormatter().format(made).splitlines()
    assert (lines[0], lines[-1]) == ("WARNING not_mirrored", "ZeroDivisionError: oops")
    assert is_worth_saying(made)
    assert not is_worth_saying(record("/site-packages/py4j/java_gateway.py"))


def test_a_log_line_for_programs_says_what_it_is_about() -> None:
    """The block's fields, the event's own, and what goes wrong, in one line."""
    made = record(batch="3")
    made.exc_info = (ZeroDivisionError, ZeroDivisionError("oops"), None)
    with about(pipeline="first", run=None), about(attempt=2):
        line = JsonFormatter().format(made)
    document = json.loads(line)
    assert "\n" not in line
    assert document.pop("at").endswith("+00:00")
    assert "oops" in document.pop("traceback")
    assert document == {
        "level": "WARNING",
        "logger": "tally",
        "event": "not_mirrored",
        "pipeline": "first",
        "attempt": 2,
        "batch": "3",
    }
    assert "pipeline" not in JsonFormatter().format(made)


SCRIPT = """
import subprocess, sys
from tally.cli.session import filtered_stderr
with filtered_stderr(lambda line: line == b"noise\\n") as copying:
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; input(); sys.stderr.write('noise\\\\nchild\\\\nend')"],
        stdin=subprocess.PIPE,
    )
    sys.stderr.write("noise\\ninside\\n")
sys.stderr.write("noise\\n")
child.communicate(b"\\n")
copying.join()
"""


def test_a_process_that_was_started_inside_stays_without_noise() -> None:
    """Everything else arrives, a last line without an end too; after the block all of it."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert sorted(ended.stderr.split()) == ["child", "end", "inside", "noise"]
