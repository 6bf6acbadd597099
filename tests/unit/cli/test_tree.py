"""The tree of commands: help, examples, options, references, and what is imported when."""

import inspect
import re
import subprocess
import sys

import click
import pyspark
import pytest
from docs import json_page
from docs.cli_page import help_of, render, walk
from tests.unit.sources import DOCS, text

from tally import __version__
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import Number
from tally.cli.tree import cli, sections
from tally.lines.format import MalformedReason

COMMANDS = {path: c for path, c in walk().items() if not isinstance(c, click.Group)}
READING = {
    *("doctor", "plan", "run", "replay", "status", "batches", "show", "replays", "dead-letters"),
    *("counts", "lines", "audit", "prune", "list", "pipelines", "try", "erasures"),
}
DECIDING = {"accept", "adopt", "abandon", "erase", "replay"}


def test_the_list_of_commands_says_what_each_command_says_itself() -> None:
    """The line in the table, which is shown without loading the command, is the command's own."""
    table = {name: line for each in sections().values() for name, (_, line) in each.items()}
    own = {name: walk()["tally", name].get_short_help_str(limit=200) for name in table}
    assert own == table


def test_every_help_has_an_example_of_its_command() -> None:
    """A command line that names the command itself; that it parses is checked with the pages."""
    for path, command in COMMANDS.items():
        lines = [line.strip() for line in help_of(path, command).splitlines()]
        assert any(line.startswith(" ".join(path)) for line in lines), path


def test_a_help_fits_a_terminal_of_80_columns() -> None:
    """An example that does not is continued as a shell continues it; no reason is broken."""
    helps = {path: help_of(path, command, 78) for path, command in walk().items()}
    assert [line for text in helps.values() for line in text.splitlines() if len(line) > 78] == []
    for path, command in COMMANDS.items():
        joined = re.sub(r" \\\n +", " ", helps[path])
        assert [example for example in command.examples if f"  {example}" not in joined] == []
    with_value = "  tally replay --range alog/0:300-310 --range alog/3:0-50 \\\n    --reason '"
    assert with_value in helps["tally", "replay"]
    reasons = helps["tally", "dead-letters"]
    assert [reason for reason in MalformedReason if reason not in reasons] == []


def test_what_reads_or_decides_offers_json_and_a_decision_asks_for_a_reason() -> None:
    """--json where something is read or decided; --reason and --dry-run for a decision."""
    for path, command in COMMANDS.items():
        offered = {name for each in command.params for name in each.opts if "--" in name}
        assert ("--json" in offered) == (path[-1] in {*READING, *DECIDING}), path
        assert path[-1] not in DECIDING or {"--reason", "--dry-run"} <= offered, path


IMPORTED = """
import contextlib, io, sys
from tally.cli import cli
for line in sys.stdin.read().splitlines():
    with contextlib.redirect_stdout(io.StringIO()) as help:
        cli.main(line.split(), prog_name="tally", standalone_mode=False)
    assert help.getvalue().startswith("Usage: tally " + line.removesuffix("--help")), line
    print(line, *sorted(set(sys.argv[1:]) & set(sys.modules)), sep="|")
"""


def test_no_help_imports_spark_or_airflow_and_the_list_of_commands_no_library() -> None:
    """They take seconds to import; `tally --help`, which is asked first, starts at once."""
    heavy, libraries = ("pyspark", "airflow"), ("pydantic", "confluent_kafka", "pymysql", "rich")
    lines = ["--help", *(" ".join([*path[1:], "--help"]) for path in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *heavy, *libraries],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [line.split("|") for line in done.stdout.splitlines()]
    imported = {line: set(names) for line, *names in answers}
    assert list(imported) == lines
    assert imported["--help"] == set()
    assert [line for line in lines if imported[line] & set(heavy)] == []


def test_what_is_misspelt_is_answered_with_what_is_like_it() -> None:
    """Commands, commands of groups, and options."""
    for words, answer in (
        (["frobnicate"], r"no command 'frobnicate'; there are .*status, pipelines"),
        (["stauts"], "no command 'stauts'; did you mean status"),
        (["losses", "acept"], "no command 'acept'; did you mean accept"),
        (["airflow", "dags", "list"], "Airflow's is called by: tally airflow cli dags list"),
        (["status", "--jsno"], "No such option.*--json"),
    ):
        with pytest.raises(click.UsageError) as caught:
            cli.main(words, standalone_mode=False)
        assert re.search(answer, caught.value.format_message())


def test_a_word_in_place_of_a_number_is_answered_with_what_is_expected() -> None:
    """Whatever takes a number; it never reads anything before."""
    for words, answer in (
        (["run", "error_log"], "'error_log' is not the number of a batch; name .* with --pipeline"),
        (["replay", "--partition", "alog/0"], "'alog/0' is not a partition's number, .* --topic"),
        (["replay", "--resume", "x"], "'x' is not the number of a replay, as tally replays"),
        (["show", "error_log"], "'error_log' is not the number of a batch, as tally batches"),
        (["show", "0"], "0 is not in the range x>=1"),
    ):
        with pytest.raises(click.UsageError) as caught:
            cli.main(words, standalone_mode=False)
        assert re.search(answer, caught.value.format_message())
    types = {type(each.type) for command in COMMANDS.values() for each in command.params}
    assert Number in types
    assert types.isdisjoint({click.IntRange, type(click.INT)})


def test_version_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    """Tally's own first."""
    cli.main(["version"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"tally {__version__}"
    assert f"pyspark {pyspark.__version__}" in lines


def test_the_reference_is_what_the_commands_say() -> None:
    """When this fails: python -m docs.cli_page > docs/cli.md."""
    page = render()
    assert text(DOCS / "cli.md") == page
    assert [path for path in walk() if f"### {' '.join(path)}\n" not in page] == []


def test_the_json_reference_is_what_the_views_are() -> None:
    """When this fails: python -m docs.json_page > docs/json.md; it has every --json."""
    assert text(DOCS / "json.md") == json_page.render()
    writes = {
        " ".join(path[1:])
        for path, command in walk().items()
        if any(parameter.name == "json" for parameter in command.params)
    }
    local = {"up", "down", "demo", "stack"}
    assert writes - local == json_page.DOCUMENTS.keys()


def test_each_command_takes_its_app_and_its_options() -> None:
    """Of the local stack's commands, too: a decorator too many would be found by a user."""
    for command in COMMANDS.values():
        if isinstance(command, Command):
            given = {parameter.name: None for parameter in command.params if parameter.expose_value}
            inspect.signature(inspect.unwrap(command.callback)).bind(App, **given)
