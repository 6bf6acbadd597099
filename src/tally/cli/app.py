"""What every command needs: the configuration, the streams, somebody to ask."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tally.cli.ui.output import Output
from tally.errors import UsageError

if TYPE_CHECKING:  # pydantic is half of a command's start; --help does without
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from tally.config.servers import SparkSettings
    from tally.config.settings import Settings
    from tally.pipeline.context import Context

Ask = Callable[[str], None]
"""Asks a question; returns when the answer is yes, and raises otherwise."""

OpenContext = Callable[["Settings"], "Context"]
"""Makes the context that a configuration names."""

OpenSpark = Callable[["SparkSettings"], "AbstractContextManager[SparkSession]"]
"""Opens a Spark session and stops it."""


def own_session(settings: "SparkSettings") -> "AbstractContextManager[SparkSession]":
    """A Spark session of the command's own."""
    from tally.app import context  # noqa: PLC0415 - see above

    return context.own_session(settings)


def configured_context(settings: "Settings") -> "Context":
    """Kafka, MySQL and Spark as the configuration names them; connected when first needed."""
    from tally.app.context import open_context  # noqa: PLC0415 - see above

    return open_context(settings)


def ask_on_terminal(question: str) -> None:
    """Ask on the terminal.

    Raises:
        UsageError: There is none.
        click.Abort: The answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "this is not done without asking, and there is no terminal to ask on",
            next_step="look at it with --dry-run, then add --yes",
        )
    click.confirm(question, abort=True, err=True)


@dataclass
class App:
    """One call of ``tally``."""

    config: Path | None = None
    """The configuration file that was asked for."""
    out: Output = field(default_factory=Output)
    """Where results and everything else go."""
    open_spark: OpenSpark = own_session
    """Where Spark comes from."""
    open_context: OpenContext = configured_context
    """Where Kafka and MySQL come from."""
    ask: Ask = ask_on_terminal
    """How a question is put to an operator."""

    @cached_property
    def settings(self) -> "Settings":
        """The configuration, read when it is first needed."""
        from tally.config.loading import load_settings  # noqa: PLC0415 - see above

        return load_settings(self.config_path)

    @cached_property
    def context(self) -> "Context":
        """What the steps need from outside, made when it is first needed."""
        return self.open_context(self.settings)

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
        """Go on only if an operator agrees, now or beforehand with ``--yes``.

        Raises:
            UsageError: There is nobody to ask, or stdout carries a document.
            click.Abort: The answer is no.
        """
        self.check_may_ask(yes=yes)
        if not yes:
            self.ask(question)

    def check_may_ask(self, *, yes: bool) -> None:
        """Raise if there is to be a question while stdout carries a document.

        Raises:
            UsageError: With what to add.
        """
        if self.out.as_json and not yes:
            raise UsageError("--json asks nobody", next_step="add --yes or --dry-run")
