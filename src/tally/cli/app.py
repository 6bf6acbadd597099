"""What every command needs: the configuration, the output streams and the confirmation prompt."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tally.cli.extensions import extensions
from tally.cli.output import Output
from tally.errors import AccessDeniedError, TallyError, UnansweredError, UsageError

if TYPE_CHECKING:  # pydantic is half of a command's start; --help does without
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from tally.config.settings import Settings
    from tally.context import Context, OpenReader
    from tally.each import Each

Ask = Callable[[str], None]
"""Asks the operator a question; returns when the answer is yes, and raises otherwise."""


def later(name: str) -> Callable[..., Any]:
    """A function of :mod:`tally.context`, imported when it is called: --help does without."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from tally import context  # noqa: PLC0415 - as above

        return getattr(context, name)(*args, **kwargs)

    return call


own_session, spark_reader, open_context = map(
    later, ("own_session", "spark_reader", "open_context")
)


def ask_on_terminal(question: str) -> None:
    """Ask on the terminal.

    Raises:
        UsageError: There is no terminal.
        click.Abort: The answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "this needs a confirmation, and there is no terminal to ask on",
            next_step="look at it with --dry-run, then add --yes",
        )
    click.confirm(question, abort=True, err=True)


@dataclass
class App:
    """One call of ``tally``."""

    config: Path | None = None
    """The configuration file of ``--config``; None without that option."""
    out: Output = field(default_factory=Output)
    """The streams for results and for everything else."""
    open_spark: Callable[..., "AbstractContextManager[SparkSession]"] = own_session
    """Opens a Spark session from the settings; it need not always be able to read Kafka."""
    read_with: Callable[..., "OpenReader"] = spark_reader
    """Makes what opens the readers of a command that counts."""
    open_context: Callable[["Settings"], "Context"] = open_context
    """Makes the context, with Kafka and MySQL, from the settings."""
    ask: Ask = ask_on_terminal
    """Asks the operator a question."""

    @cached_property
    def settings(self) -> "Settings":
        """The configuration, read when it is first needed."""
        from tally.config.loading import load_settings  # noqa: PLC0415 - --help does without
        from tally.config.settings import in_lines  # noqa: PLC0415 - --help does without

        settings = load_settings(self.config_path)
        for name, wrong in settings.disabled.items():
            self.out.note(in_lines(f"pipeline {name} is disabled", wrong))
        return settings

    @cached_property
    def context(self) -> "Context":
        """The context of the use cases, made when it is first needed."""
        return self.open_context(self.settings)

    @property
    def config_path(self) -> Path:
        """The configuration file that applies."""
        from tally.config.loading import config_path  # noqa: PLC0415 - --help does without

        return self.config.absolute() if self.config else config_path()

    def explain(self, error: TallyError) -> None:
        """Give the error of a server that did not answer, or refused, a better next step.

        The extensions may know how the server is started; of a refused login it is told where user
        and password come from. Other errors stay as they are.
        """
        if isinstance(error, UnansweredError):
            for extension in extensions():
                import_module(extension.hints).say_what_starts_them(self, error)
        elif isinstance(error, AccessDeniedError):
            from tally.set_up.configuration import name_sources  # noqa: PLC0415 - --help does without

            name_sources(self.settings, self.config_path, error)

    @property
    def airflow_environment(self) -> dict[str, str]:
        """Variables that say where the Airflow of an extension is; none without one."""
        found: dict[str, str] = {}
        for extension in extensions():
            found |= import_module(extension.hints).airflow_environment(self)
        return found

    def chosen(self, name: str | None) -> list[str]:
        """The pipeline of that name; all of them, sorted, when none is named.

        Raises:
            UnknownPipelineError: No pipeline of that name is configured.
        """
        several = name is None and len(self.settings.names) > 1
        return self.settings.names if several else [self.pipeline(name)]

    def finish(self, each: "Each[Any]") -> int:
        """Show what went wrong with each of several pipelines; returns the exit code.

        Raises:
            TallyError: Of a server that does not answer, after the other errors are shown.
        """
        for name, error in each.errors.items():
            self.explain(error)
            if error is not each.down:
                named = error.what.startswith((f"pipeline {name}", f"pipelines.{name}."))
                what = error.what if named else f"pipeline {name}: {error.what}"
                self.out.problem(error.code, what, error.next_step)
        if each.down is not None:
            raise each.down
        return each.exit_code

    def pipeline(self, name: str | None) -> str:
        """The pipeline of that name; the only one when none is named.

        Raises:
            UnknownPipelineError, ConfigError: As :meth:`tally.config.settings.Settings.pipeline`.
            UsageError: No name is given and several pipelines are configured.
        """
        if name is None:
            name, *others = self.settings.names
            if others:
                raise UsageError(
                    f"several pipelines are configured: {', '.join([name, *others])}",
                    next_step="name one after the command",
                )
        return self.settings.pipeline(name).name

    def confirm(self, question: str, *, yes: bool) -> None:
        """Return only if the operator agrees, now or beforehand with ``--yes``.

        Raises:
            UsageError: There is no terminal to ask on, or stdout carries a JSON document.
            click.Abort: The answer is no.
        """
        self.check_may_ask(yes=yes)
        if not yes:
            self.ask(question)

    def check_may_ask(self, *, yes: bool) -> None:
        """Raise if the operator would have to be asked while stdout carries a JSON document.

        Raises:
            UsageError: It names the options to add.
        """
        if self.out.as_json and not yes:
            raise UsageError(
                "this needs a confirmation, which --json cannot ask for",
                next_step="add --yes or --dry-run",
            )
