"""The tree of commands: help, examples, options, and what is imported when."""

import re
import shlex
import subprocess
import sys

import click
import pyspark
import pytest

from tally import __version__
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.tree import EXAMPLES, cli, help_of, sections, walk

COMMANDS = {path: c for path, c in walk().items() if not isinstance(c, click.Group)}
TABLE = {name: line for section in sections().values() for name, (_, line) in section.items()}
READING = {
    *("doctor", "plan", "run", "replay", "status", "batches", "show", "replays", "dead-letters"),
    *("counts", "audit", "prune", "list", "pipelines", "try"),
}
DECIDING = {"accept", "adopt", "abandon", "replay"}


def options(command: click.Command) -> set[str]:
    """All long options of a command."""
    return {name for parameter in command.params for name in parameter.opts if "--" in name}


def examples() -> list[str]:
    """Every example of every command."""
    own = [e for c in COMMANDS.values() if isinstance(c, Command) for e in c.examples]
    return [*EXAMPLES, *own]


def parse(words: list[str]) -> click.Context:
    """Parse a command line down to its last command, without running anything."""
    context = cli.make_context("tally", words[1:], obj=App())
    command: click.Command = cli
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert found is not None
        assert name is not None
        command = found
        context = found.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("name", sorted(TABLE))
def test_the_list_of_commands_says_what_the_command_says_itself(name: str) -> None:
    """The line in the table, which is shown without loading the command, is the command's own."""
    assert TABLE[name] == walk()["tally", name].get_short_help_str(limit=200)


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_every_command_has_an_example_in_its_help(path: tuple[str, ...]) -> None:
    """Each help ends with a command line that names the command itself."""
    text = help_of(path, COMMANDS[path])
    assert any(line.strip().startswith(" ".join(path)) for line in text.splitlines())


@pytest.mark.parametrize("example", examples())
def test_every_example_is_a_command_line_that_parses(example: str) -> None:
    """Examples name only commands, arguments and options that exist."""
    words = shlex.split(example.split(" | ", maxsplit=1)[0])
    assert parse(words).command in COMMANDS.values()


def test_an_example_with_a_wrong_option_would_be_noticed() -> None:
    """The check of the examples can fail."""
    with pytest.raises(click.NoSuchOption):
        parse(["tally", "plan", "--frobnicate"])


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_what_reads_or_decides_offers_json_and_a_decision_asks_for_a_reason(
    path: tuple[str, ...],
) -> None:
    """--json where something is read or decided; --reason and --dry-run for a decision."""
    offered = options(COMMANDS[path])
    assert ("--json" in offered) == (path[-1] in {*READING, *DECIDING})
    if path[-1] in DECIDING:
        assert {"--reason", "--dry-run"} <= offered


def imported_by(*words: str) -> set[str]:
    """The modules that a command line has imported when it ends."""
    script = (
        "import sys\n"
        "from tally.cli import cli\n"
        "try: cli.main(sys.argv[1:], prog_name='tally', standalone_mode=False)\n"
        "finally: print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_the_list_of_commands_is_shown_without_loading_any_of_them() -> None:
    """`tally --help` starts at once: no configuration, no client library is imported."""
    assert not {"pydantic", "confluent_kafka", "pymysql", "rich", "pyspark"} & imported_by("--help")


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_no_command_imports_spark_or_airflow_before_it_needs_them(path: tuple[str, ...]) -> None:
    """Spark and Airflow take seconds to import; a command's help does without."""
    assert not {"pyspark", "airflow"} & imported_by(*path[1:], "--help")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["frobnicate"], r"no command 'frobnicate'; there are .*status, pipelines"),
        (["stauts"], "no command 'stauts'; did you mean status"),
        (["losses", "acept"], "no command 'acept'; did you mean accept"),
        (["status", "--jsno"], "No such option.*--json"),
    ],
)
def test_what_is_misspelt_is_answered_with_what_is_like_it(words: list[str], answer: str) -> None:
    """Commands, commands of groups, and options."""
    with pytest.raises(click.UsageError) as caught:
        cli.main(words, standalone_mode=False)
    assert re.search(answer, caught.value.format_message())


def test_version_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    """Tally's own first."""
    cli.main(["version"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"tally {__version__}"
    assert f"pyspark {pyspark.__version__}" in lines
