"""What every command needs: the configuration, the streams, somebody to ask."""

import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tally.cli.output import Output
from tally.errors import UsageError

if TYPE_CHECKING:  # pydantic is half of a command's start; --help does without
    from tally.config.settings import Settings


@dataclass
class App:
    """One call of ``tally``."""

    config: Path | None = None
    """The configuration file that was asked for."""
    out: Output = field(default_factory=Output)
    """Where results and everything else go."""

    @cached_property
    def settings(self) -> "Settings":
        """The configuration, read when it is first needed."""
        from tally.config.loading import load_settings  # noqa: PLC0415 - see above

        return load_settings(self.config_path)

    @property
    def config_path(self) -> Path:
        """The configuration file that applies."""
        from tally.config.loading import config_path  # noqa: PLC0415 - see above

        return self.config.absolute() if self.config else config_path()

    def pipeline(self, name: str | None) -> str:
        """The pipeline of that name; the only one when none is named.

        Raises:
            UnknownPipelineError: None of that name is configured.
            UsageError: None is named and several are configured.
        """
        if name is not None:
            return self.settings.pipeline(name).name
        names = sorted(self.settings.pipelines)
        if len(names) > 1:
            raise UsageError(
                f"several pipelines are configured: {', '.join(names)}", next_step="name one"
            )
        return names[0]

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if a person agrees, now or beforehand with ``--yes``.

        Raises:
            UsageError: There is nobody to ask.
            click.Abort: The answer is no.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                "this is not done without asking, and there is no terminal to ask on",
                next_step="look at it with --dry-run, then add --yes",
            )
        click.confirm(question, abort=True, err=True)
