"""The tree of commands, in the order and the sections in which ``tally --help`` lists them."""

import logging
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

from tally import __version__
from tally.cli.app import App
from tally.cli.command import Group, write_examples
from tally.cli.extensions import Sections, explain, extensions
from tally.cli.failures import guarded, past_click, terminable
from tally.cli.ui.stderr import LogFormatter, is_worth_saying
from tally.errors import AccessDeniedError, KafkaUnavailableError, MySQLUnavailableError

# Section → command → (module that defines it, one line of help). The line is here so that
# ``tally --help`` loads none of the modules; a test holds it equal to the command's own help.
SECTIONS: Final[Sections] = {
    "Set-up": {
        "migrate": (".set_up", "Create or update Tally's tables in MySQL."),
        "config": (".set_up", "Show the configuration that applies."),
        "format": (".format", "Try line formats before they are configured."),
        "doctor": (".status", "Check everything Tally needs and say what to do."),
        "airflow": (".set_up", "Let an Airflow of your own find Tally, and call it."),
        "jars": (".set_up", "Fetch Spark's Kafka connector, and prepare Spark's start."),
        "connect-server": (
            ".set_up",
            "Keep a Spark Connect server running, so that no batch starts a Spark.",
        ),
        "version": (".set_up", "Show the versions of Tally and of what it runs on."),
        "prune": (".decisions", "Fold old contributions that Kafka can no longer serve."),
    },
    "Counting": {
        "plan": (".counting", "Fix which offsets the next batch reads."),
        "run": (".counting", "Count a batch and commit it."),
        "replay": (".replay", "Reprocess ranges of offsets and replace their counts."),
    },
    "Results and status": {
        "status": (
            ".status",
            "Show the health of a pipeline and the status of each partition.",
        ),
        "pipelines": (
            ".status",
            "List all pipelines with health, lag and last commit.",
        ),
        "counts": (".results", "Show the result: lines per minute."),
        "batches": (".batches", "List batches, newest first."),
        "show": (".batches", "Show one batch with its ranges and counts."),
        "replays": (".batches", "List replays, newest first."),
        "dead-letters": (".results", "List records that could not be understood."),
        "audit": (".results", "Prove that the result is what Kafka held."),
    },
    "Decisions": {
        "losses": (".decisions", "Records that are gone from Kafka."),
        "topics": (".decisions", "Topics that were deleted and created again."),
        "abandon": (".decisions", "Abandon a planned batch."),
    },
}

CONTEXT: Final[Mapping[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}

EXAMPLES: Final = (
    "tally migrate",
    "tally run --all",
    "tally --config /etc/tally/tally.toml status",
)


def sections() -> Sections:
    """All commands by section, those of installed extensions first."""
    return {**{k: v for e in extensions() for k, v in e.sections.items()}, **SECTIONS}


def _places(of: Sections) -> dict[str, tuple[str, str]]:
    return {name: place for section in of.values() for name, place in section.items()}


def _place(name: str) -> tuple[str, str] | None:
    """Tally's own commands first: an extension is looked for only when it is needed."""
    return _places(SECTIONS).get(name) or _places(sections()).get(name)


class TallyGroup(Group):
    """The root: loads a command's module on demand, and ends with Tally's exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All commands, by section."""
        return list(_places(sections()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name; loads its module."""
        place = _place(cmd_name)
        if place is None:
            return None
        module = import_module(place[0], "tally.cli")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table above."""
        for section, commands in sections().items():
            with formatter.section(section):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, then the exit codes."""
        write_examples(formatter, EXAMPLES)
        super().format_epilog(ctx, formatter)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Parse the command line; ``--help`` writes here."""
        with past_click():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with past_click():
            return super().invoke(ctx)

    def main(  # type: ignore[override]  # narrower than click's overloads
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line; in standalone mode, exit with the code that says how it ended."""
        app = extra.setdefault("obj", App())
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)

        def work() -> Any:
            try:
                with terminable():
                    return super(TallyGroup, self).main(
                        args, prog_name, standalone_mode=False, **extra
                    )
            except (KafkaUnavailableError, MySQLUnavailableError) as error:
                explain(app, error)
                raise
            except AccessDeniedError as error:
                app.say_sources(error)
                raise
            except click.UsageError:  # raised before --json itself was looked at
                app.out.as_json |= "--json" in (sys.argv[1:] if args is None else args)
                raise

        sys.exit(guarded(work, app.out))


@click.group(
    cls=TallyGroup,
    context_settings=CONTEXT,
    epilog="Exit codes: 0 done, 1 a check found something, 2 usage, 3 try again, 4 an operator "
    "must decide, 5 another attempt was first, 70 a bug in Tally, 130 cancelled, 143 terminated.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file; TALLY_CONFIG or ./tally.toml by default.",
)
@click.version_option(__version__, prog_name="tally")
@click.pass_obj
def cli(app: App, config: Path | None) -> None:
    """Count the error lines of a log topic per minute, each line exactly once."""
    app.config = config


def main() -> None:
    """Entry point of the program ``tally``."""
    _survive_any_encoding()
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    handler.addFilter(is_worth_saying)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    cli.main(prog_name="tally")


def _survive_any_encoding() -> None:
    # A character that the terminal's encoding does not have must not fail a command after a commit.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def help_of(path: Sequence[str], command: click.Command, width: int = 100) -> str:
    """A command's help, as a terminal of that width shows it."""
    context = click.Context(command, info_name=" ".join(path), terminal_width=width, **CONTEXT)
    return command.get_help(context)


def walk(
    command: click.Command = cli, path: tuple[str, ...] = ("tally",)
) -> MutableMapping[tuple[str, ...], click.Command]:
    """Every command below ``command``, itself included, by its path; for docs and tests."""
    found: dict[tuple[str, ...], click.Command] = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                found.update(walk(child, (*path, name)))
    return found
