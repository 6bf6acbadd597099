"""A command whose help ends with examples that can be pasted."""

import re
import shlex
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from inspect import cleandoc
from typing import Any, Final

import click

from tally.cli.app import App
from tally.cli.options import json_option

_WORD: Final = re.compile(r"(?:--[\w-]+ (?!-))?(?:'[^']*'|[^\s'])+")
"""A word of an example, with its blanks in quotes; an option stays with its value."""
_CONTINUES: Final = " \\"

pass_app = click.make_pass_decorator(App)


class _WithExamples(click.Command):
    """A help whose section of examples, one on each line, is shown at its end.

    Args:
        name: What is typed.
        help: The text, with its examples below ``Examples:``; a test holds that they parse.
        **kwargs: click's own.
    """

    def __init__(self, name: str | None, *, help: str | None = None, **kwargs: Any) -> None:  # noqa: A002 - click's name
        text, _, examples = cleandoc(help or "").partition("\n\nExamples:\n")
        super().__init__(name, help=text, **kwargs)
        self.examples = [line.strip() for line in examples.splitlines()]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples; where one is too wide, the shell continues it on the next line."""
        if self.examples:
            with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
                for example in self.examples:
                    formatter.write(f"{_continued(example, formatter)}\n")
        super().format_epilog(ctx, formatter)


class Command(_WithExamples):
    """A command of Tally's; its first argument is the :class:`tally.cli.app.App`.

    Args:
        name: What is typed.
        document: What it writes with ``--json``, an option that it has with a document alone.
        several: What it writes instead about several pipelines.
        callback: What it does.
        **kwargs: click's own.
    """

    def __init__(
        self,
        name: str | None,
        *,
        document: type | None = None,
        several: type | None = None,
        callback: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, callback=callback and pass_app(callback), **kwargs)
        self.document, self.several = document, several
        if document is not None:
            self.params.append(json_option)


command = partial(click.command, cls=Command)
"""Makes a command of a function."""


class Group(_WithExamples, click.Group):
    """A group of commands that answers a misspelt one with those that look like it."""

    command_class = Command
    instead = "there are {known}"
    """What is said of ``{words}`` that begin with none of the ``{known}`` and nothing like one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names, and the other arguments."""
        name = args[0]
        is_option = name.startswith("-")
        if not is_option and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            close = get_close_matches(name, known)
            instead = f"did you mean {' or '.join(close)}?" if close else self.instead
            instead = instead.format(words=shlex.join(args), known=", ".join(known))
            ctx.fail(f"there is no command {name!r}; {instead}")
        return super().resolve_command(ctx, args)


def _continued(example: str, formatter: click.HelpFormatter) -> str:
    lines = [" " * formatter.current_indent]
    for word in _WORD.findall(example):
        if len(lines[-1]) + len(word) + len(_CONTINUES) > formatter.width and lines[-1].strip():
            lines[-1] += _CONTINUES
            lines.append(" " * formatter.current_indent * 2)
        lines[-1] += word if lines[-1].isspace() else f" {word}"
    return "\n".join(lines)
