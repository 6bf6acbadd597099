"""A command whose help ends with examples that can be pasted."""

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

import click

from tally.cli.app import App
from tally.cli.options import json_option

_WORD: Final = re.compile(r"(?:--[\w-]+ (?!-))?(?:'[^']*'|[^\s'])+")
"""A word of an example, with its blanks in quotes; an option stays with its value."""
_CONTINUES: Final = " \\"

pass_app = click.make_pass_decorator(App)


class Command(click.Command):
    """A command of Tally's; its first argument is the :class:`tally.cli.app.App`.

    Args:
        examples: Whole command lines; a test holds that they parse.
        document: What it writes with ``--json``, an option that it has with a document alone.
        several: What it writes instead about several pipelines.
        callback: What it does.
        **kwargs: click's own.
    """

    def __init__(
        self,
        *,
        examples: Sequence[str],
        document: type | None = None,
        several: type | None = None,
        callback: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(callback=callback and pass_app(callback), **kwargs)
        self.examples = tuple(examples)
        self.document, self.several = document, several
        if document is not None:
            self.params.append(json_option)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, never wrapped within a word."""
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


command = partial(click.command, cls=Command)
"""Makes a command of a function."""


class Group(click.Group):
    """A group of commands that answers a misspelt one with those that look like it."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names, and the other arguments."""
        name = args[0]
        is_option = name.startswith("-")
        if not is_option and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = self.list_commands(ctx)
            close = get_close_matches(name, known)
            instead = f"did you mean {' or '.join(close)}?" if close else self.instead(args, known)
            ctx.fail(f"there is no command {name!r}; {instead}")
        return super().resolve_command(ctx, args)

    def instead(self, args: Sequence[str], known: Sequence[str]) -> str:  # noqa: ARG002
        """What to do instead of words that begin with no command and nothing like one.

        Args:
            args: The words.
            known: The commands.
        """
        return f"there are {', '.join(known)}"


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """A section of examples; where one is too wide, the shell continues it on the next line."""
    with formatter.section("Examples" if len(examples) > 1 else "Example"):
        for example in examples:
            formatter.write(f"{_continued(example, formatter)}\n")


def _continued(example: str, formatter: click.HelpFormatter) -> str:
    lines = [" " * formatter.current_indent]
    for word in _WORD.findall(example):
        if len(lines[-1]) + len(word) + len(_CONTINUES) > formatter.width and lines[-1].strip():
            lines[-1] += _CONTINUES
            lines.append(" " * formatter.current_indent * 2)
        lines[-1] += word if lines[-1].isspace() else f" {word}"
    return "\n".join(lines)
