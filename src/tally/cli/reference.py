"""``docs/cli.md``, from the commands themselves.

``python -m tally.cli.reference > docs/cli.md`` writes it; a test holds the two equal.
"""

import inspect
import sys
from collections.abc import Iterator

import click

from tally.cli import failures
from tally.cli.tree import help_of, sections, walk

HEADER = """\
# The command line

Written by `python -m tally.cli.reference` from the commands' own help; do not edit.

Results go to stdout, everything else (progress, warnings, errors) to stderr. On a terminal there
are colours and a progress bar; piped, there is neither, and no line is cut. Counts have separators
between thousands; offsets have none, so that they can be pasted into the next command. Times are
UTC; `MINUTE` is the wall clock of the log lines themselves.

With `--json` stdout carries exactly one JSON document, described in [json.md](json.md). Keys are
only ever added. When a command fails before it has a result, that document is
`{"error": {"code", "exit_code", "what", "next_step"}}`; the same error is on stderr as text.
`code` is the name of an entry in the [runbook](runbook.md).

`PIPELINE` may be left out where it is in brackets and exactly one pipeline is configured. With
several, `status`, `run`, `counts`, `audit` and `config show` are then about all of them.

The shell completes commands, options, pipelines, topics and batches after
`eval "$(_TALLY_COMPLETE=bash_source tally)"` in `~/.bashrc`; `zsh_source` and `fish_source` are for
these shells.
"""


def render() -> str:
    """The whole page."""
    return "\n".join([HEADER, *_exit_codes(), *_sections()])


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield "| code | meaning |\n|---|---|"
    for line in inspect.getdoc(failures).splitlines():  # type: ignore[union-attr]  # it has one
        code, _, meaning = line.partition(" ")
        if code.isdigit():
            yield f"| {code} | {meaning.strip()} |"
    yield ""


def _sections() -> Iterator[str]:
    commands = walk()
    yield from _command(("tally",), commands[("tally",)])
    for title, names in sections().items():
        yield f"## {title}\n"
        for path, command in commands.items():
            if len(path) > 1 and path[1] in names:
                yield from _command(path, command)


def _command(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    yield f"### {' '.join(path)}\n"
    yield f"```text\n{help_of(path, command)}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(render())
