"""A command whose help ends with examples that can be pasted."""

from collections.abc import Sequence
from typing import Any

import click


class Command(click.Command):
    """A command of Tally's.

    Args:
        *args: click's own.
        examples: Whole command lines; a test holds that they parse.
        **kwargs: click's own.
    """

    def __init__(self, *args: Any, examples: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, one to a line and never wrapped."""
        write_examples(formatter, self.examples)
        super().format_epilog(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """A section of examples."""
    with formatter.section("Examples" if len(examples) > 1 else "Example"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")
