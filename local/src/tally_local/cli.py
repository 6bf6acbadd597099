"""``up``, ``down``, ``demo``: the local stack."""

from pathlib import Path

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import pass_app
from tally.errors import ConfigError
from tally.formatting import ABSENT
from tally_local.stack.server import Part, PartStatus
from tally_local.stack.stack import ALL_PARTS, Stack

parts_argument = click.argument(
    "parts", nargs=-1, metavar="[PART]...", type=click.Choice([str(part) for part in Part])
)


@click.command(cls=Command, examples=["tally up", "tally up kafka mysql"])
@parts_argument
@click.option(
    "--foreground",
    is_flag=True,
    help="Stay until Ctrl-C or SIGTERM, then stop what was started.",
)
@pass_app
def up(app: App, parts: tuple[str, ...], foreground: bool) -> None:
    """Start the local stack: Kafka, MySQL and Airflow.

    Real servers, without root and without Docker. The first call downloads them. Everything is in
    .tally beside the configuration, where all other commands find the addresses and passwords. A
    part that runs already is not restarted. PART is kafka, mysql or airflow; by default all three.
    """
    stack, wanted = _stack(app), _parts(parts)
    if not foreground:
        _show(app, stack.up(wanted))
        return
    try:
        with stack.foreground(wanted) as states:
            _show(app, states)
            stack.watch(wanted)
    except KeyboardInterrupt:  # the normal end
        app.out.line("stopped")


@click.command(cls=Command, examples=["tally down", "tally down airflow"])
@parts_argument
@pass_app
def down(app: App, parts: tuple[str, ...]) -> None:
    """Stop the local stack; its data stays.

    Stops exactly the processes that were started for this checkout, by any command. To delete the
    data, delete the folder .tally afterwards.
    """
    stopped = _stack(app).down(_parts(parts))
    app.out.line(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@click.command(cls=Command, examples=["tally demo --once"])
@click.option("--once", is_flag=True, help="Count two minutes, check them and stop.")
@click.pass_context
def demo(context: click.Context, once: bool) -> None:
    """Count generated lines on the local stack and check the result."""
    from tally_local.demo import run  # noqa: PLC0415 - only this command needs it

    context.exit(run(_project(context.ensure_object(App)), once=once))


def _project(app: App) -> Path:
    # Stopping the servers needs no valid configuration, but its folder says which servers to stop.
    path = app.config_path
    if not path.is_file():
        raise ConfigError(
            f"there is no configuration file {path}",
            next_step="run tally where tally.toml lies, or name it with --config",
        )
    return path.parent


def _stack(app: App) -> Stack:
    return Stack(project=_project(app), announce=app.out.note)


def _parts(names: tuple[str, ...]) -> tuple[Part, ...]:
    return tuple(Part(name) for name in names) or ALL_PARTS


def _show(app: App, states: list[PartStatus]) -> None:
    app.out.table(
        ["PART", "STATE", "ADDRESS", "PID"],
        [[str(s.part), str(s.state), s.address or ABSENT, str(s.pid or ABSENT)] for s in states],
    )
