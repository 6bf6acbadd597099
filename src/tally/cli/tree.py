"""The tree of commands, in the order and the sections in which ``tally --help`` lists them."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import shell_complete

from tally import __version__, logs
from tally.cli.app import App
from tally.cli.command import Group
from tally.cli.extensions import Sections, extensions
from tally.cli.failures import guarded, terminable
from tally.errors import TallyError

# Section → command → (module that defines it, one line of help). The line is here so that
# ``tally --help`` loads none of the modules; a test holds it equal to the command's own help.
SECTIONS: Final[Sections] = {
    "Set-up": {
        "migrate": (".set_up", "Create or update Tally's tables in MySQL."),
        "config": (".set_up", "Show the configuration that applies."),
        "format": (".format", "Try line formats before they are configured."),
        "doctor": (".status", "Check everything Tally needs and say what to do."),
        "airflow": (".set_up", "Let an Airflow of your own find Tally, and call it."),
        "monitoring": (".set_up", "Let a Prometheus and a Grafana of your own watch Tally."),
        "jars": (".set_up", "Fetch Spark's Kafka connector, and prepare Spark's start."),
        "connect-server": (
            ".set_up",
            "Keep a Spark Connect server running, so that no batch starts a Spark.",
        ),
        "version": (".set_up", "Show the versions of Tally and of what it runs on."),
        "prune": (".decisions", "Fold old contributions that Kafka can no longer serve."),
    },
    "Counting": {
        "plan": (".batches", "Fix which offsets the next batch reads."),
        "run": (".batches", "Count a batch and commit it."),
        "replay": (".replay", "Reprocess ranges of offsets and replace their counts."),
    },
    "Results and status": {
        "status": (".status", "Show the health of a pipeline and the status of each partition."),
        "pipelines": (".status", "List all pipelines with health, lag and last commit."),
        "counts": (".results", "Show the result: lines per minute."),
        "lines": (".records", "Show the lines behind a count."),
        "batches": (".batches", "List batches, newest first."),
        "show": (".batches", "Show one batch with its ranges and counts."),
        "replays": (".batches", "List replays, newest first."),
        "dead-letters": (".records", "List records that could not be understood."),
        "audit": (".results", "Prove that the result is what Kafka held."),
    },
    "Decisions": {
        "losses": (".decisions", "Records that are gone from Kafka."),
        "topics": (".decisions", "Topics that were deleted and created again."),
        "abandon": (".decisions", "Abandon a planned batch."),
        "erase": (".decisions", "Erase the text of lines that must go."),
        "erasures": (".decisions", "List what was erased by request, oldest first."),
    },
}

CONTEXT: Final[Mapping[str, Any]] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "show_default": True,
}

COMPLETE: Final = "_TALLY_COMPLETE"
"""The environment variable by which a shell asks for completions."""


def sections() -> Sections:
    """All commands by section, those of installed extensions first."""
    return {**{k: v for e in extensions() for k, v in e.sections.items()}, **SECTIONS}


def _places(of: Sections) -> dict[str, tuple[str, str]]:
    return {name: place for section in of.values() for name, place in section.items()}


class TallyGroup(Group):
    """The root: loads a command's module on demand, and ends with Tally's exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """All commands, by section."""
        return list(_places(sections()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name; loads its module, and looks for extensions when needed."""
        place = _places(SECTIONS).get(cmd_name) or _places(sections()).get(cmd_name)
        if place is None:
            return None
        command: click.Command = getattr(
            import_module(place[0], "tally.cli"), cmd_name.replace("-", "_")
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, from the table above."""
        for section, commands in sections().items():
            with formatter.section(section):
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])

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
        if instruction := os.environ.get(COMPLETE):
            sys.exit(shell_complete(self, extra, "tally", COMPLETE, instruction))
        words = list(sys.argv[1:] if args is None else args)

        def work() -> Any:
            try:
                # As click's own main does, which would end a closed pipe with exit code 1.
                given = [*words]  # which click empties
                with terminable(), self.make_context(prog_name or "tally", given, **extra) as ctx:
                    return self.invoke(ctx)
            except KeyboardInterrupt:
                click.echo(err=True)  # after the terminal's ^C
                raise
            except TallyError as error:
                app.explain(error)
                raise
            except click.UsageError:  # raised before --json itself was looked at
                app.out.as_json |= "--json" in words
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
    """Count the error lines of a log topic per minute, each line exactly once.

    Examples:
        tally migrate
        tally run --all
        tally --config /etc/tally/tally.toml status
    """
    app.config = config


def main() -> None:
    """Entry point of the program ``tally``."""
    # A character that the terminal's encoding does not have must not fail a command after a commit.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    logs.configure(logging.WARNING)
    cli.main(prog_name="tally")
