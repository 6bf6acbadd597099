"""``docs/cli.md``, from the commands themselves.

``python -m docs.cli_page > docs/cli.md`` writes it; a test holds the two equal.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from tally.cli.command import Command
from tally.cli.tree import CONTEXT, cli, sections

HEADER: Final = """\
# The command line

Written by `python -m docs.cli_page` from the commands' own help; do not edit.

Results go to stdout; progress, warnings and errors go to stderr. On a terminal there are colours
and a progress bar; piped, there is neither, and no line is cut. Counts have thousands separators;
offsets have none, so that they can be pasted into the next command. Times are UTC; `MINUTE` is the
wall clock of the log lines.

With `--json` stdout carries exactly one [JSON document](json.md). A command that fails before it
has a result writes `{"error": {"code", "exit_code", "what", "next_step"}}`, and the same error to
stderr as text; `code` is an entry of the [runbook](runbook.md), which also lists the
[exit codes](runbook.md#exit-codes).

`PIPELINE` may be omitted where it is in brackets and exactly one pipeline is configured. With
several, `status`, `run`, `counts`, `audit` and `config show` then cover all of them.

For completion of commands, options, pipelines, topics and batches, put
`eval "$(_TALLY_COMPLETE=bash_source tally)"` into `~/.bashrc`, or use `zsh_source` or
`fish_source`.
"""

SHARED_BY: Final = 3
"""An option with one help text in this many commands is described once, above them."""


def render() -> str:
    """The whole page."""
    shared = _shared_options()
    return "\n".join([HEADER, *_options(shared), *_sections(shared)])


def _shared_options() -> Mapping[str, str]:
    """The options that several commands have with the same meaning, and their help."""
    used = Counter(
        (option.opts[0], option.help or "")
        for command in walk().values()
        for option in command.params
        if isinstance(option, click.Option)
    )
    return {name: text for (name, text), times in used.items() if times >= SHARED_BY}


def _options(shared: Mapping[str, str]) -> Iterator[str]:
    yield "## Shared options\n"
    yield "The usage line of a command names those that it has.\n"
    yield "| option | meaning |\n|---|---|"
    yield "| `-h`, `--help` | Show a command's help. |"
    for name, text in shared.items():
        yield f"| `{name}` | {text} |"
    yield ""


def _sections(shared: Mapping[str, str]) -> Iterator[str]:
    commands = walk()
    yield from _command(("tally",), commands[("tally",)], shared)
    for title, names in sections().items():
        yield f"## {title}\n"
        for path, command in commands.items():
            if len(path) > 1 and path[1] in names:
                yield from _command(path, command, shared)


def _command(
    path: tuple[str, ...], command: click.Command, shared: Mapping[str, str]
) -> Iterator[str]:
    yield f"### {' '.join(path)}\n"
    yield f"```text\n{help_of(path, _brief(command, shared))}\n```\n"


def _brief(command: click.Command, shared: Mapping[str, str]) -> click.Command:
    """A command whose help names the shared options in its usage line only."""
    own, usage = [], []
    for parameter in command.params:
        name = parameter.opts[0]
        if not isinstance(parameter, click.Option) or shared.get(name) != parameter.help:
            own.append(parameter)
        else:
            metavar = parameter.make_metavar(click.Context(command))
            value = "" if parameter.is_flag else f" {metavar}"
            usage.append(f"{name}{value}" if parameter.required else f"[{name}{value}]")
    if any(isinstance(parameter, click.Option) for parameter in own):
        usage.insert(0, "[OPTIONS]")
    if isinstance(command, click.Group):
        usage.append("COMMAND")
    described: dict[str, Any] = {
        "name": command.name,
        "params": own,
        "help": command.help,
        "options_metavar": " ".join(usage),
        "add_help_option": False,
    }
    if isinstance(command, Command):
        brief = Command(**described)
        shown = [example for example in command.examples if example != f"tally {command.name}"]
        brief.examples = shown or command.examples
        return brief
    return click.Command(**described)


def help_of(path: Sequence[str], command: click.Command, width: int = 100) -> str:
    """A command's help, as a terminal of that width shows it."""
    context = click.Context(command, info_name=" ".join(path), terminal_width=width, **CONTEXT)
    return command.get_help(context)


def walk(
    command: click.Command = cli, path: tuple[str, ...] = ("tally",)
) -> Mapping[tuple[str, ...], click.Command]:
    """Every command below ``command``, itself included, by its path."""
    found: dict[tuple[str, ...], click.Command] = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                found.update(walk(child, (*path, name)))
    return found


if __name__ == "__main__":
    sys.stdout.write(render())
