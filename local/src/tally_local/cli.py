"""``up``, ``down``, ``demo``, ``kafka``: the local stack."""

import os
from pathlib import Path

import click

from tally.cli.app import App
from tally.cli.command import command
from tally.errors import ConfigError
from tally.formatting import ABSENT
from tally_local import kafka_tools
from tally_local.kafka_tools import TOOLS, check_reachable
from tally_local.stack.server import Part, PartStatus
from tally_local.stack.stack import ALL_PARTS, USUAL_PARTS, Stack

parts_argument = click.argument(
    "parts", nargs=-1, metavar="[PART]...", type=click.Choice([str(part) for part in Part])
)


@command(examples=["tally up", "tally up kafka mysql", "tally up --cluster"])
@parts_argument
@click.option(
    "--cluster",
    is_flag=True,
    help="Count on a standalone Spark cluster: a master, and two workers on hosts of their own.",
)
@click.option(
    "--foreground",
    is_flag=True,
    help="Stay until Ctrl-C or SIGTERM, then stop what was started.",
)
def up(app: App, parts: tuple[str, ...], cluster: bool, foreground: bool) -> None:
    """Start the local stack: Kafka, MySQL, Spark and Airflow.

    Real servers, without root and without Docker, which the first call downloads. Everything is in
    .tally beside the configuration, where all other commands find the addresses and passwords. PART
    is kafka, mysql, cluster, spark or airflow; by default all but the cluster. Spark is a Spark
    Connect server, which is kept running, so that a batch starts no JVM; after tally down spark
    each batch has a Spark of its own again.

    Then the tables are migrated, and missing topics of the configured pipelines are created. A
    second call changes nothing, and shows the addresses again, and the command that shows the
    passwords.
    """
    stack, wanted = _stack(app), _parts(parts) or USUAL_PARTS
    if cluster:
        wanted = (*wanted, Part.CLUSTER)
    if not foreground:
        from tally_local.first_use import own_name, telling_what_runs  # noqa: PLC0415 - clients

        with telling_what_runs(stack, app.out.note, own_name()):
            _show(app, stack.up(wanted))
            _make_ready(app, stack)
        return
    try:
        with stack.foreground(wanted) as states:
            _show(app, states)
            _make_ready(app, stack)
            stack.watch(wanted)
    except KeyboardInterrupt:  # the normal end
        app.out.line("stopped")


@command(examples=["tally down", "tally down airflow"])
@parts_argument
def down(app: App, parts: tuple[str, ...]) -> None:
    """Stop the local stack; its data stays.

    Stops exactly the processes that were started for this checkout, by any command. To delete the
    data, delete the folder .tally afterwards.
    """
    stopped = _stack(app).down(_parts(parts) or ALL_PARTS)
    app.out.line(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@command(examples=["tally demo --once"])
@click.option("--once", is_flag=True, help="Count twice, check the counts and stop.")
@click.pass_context
def demo(context: click.Context, once: bool) -> None:
    """Count generated lines on the local stack and check the result.

    Servers that run already are used, and stopped at the end like all others.
    """
    from tally_local.demo import run  # noqa: PLC0415 - only this command needs it

    context.exit(run(_project(context.ensure_object(App)), once=once))


@command(
    examples=[
        "tally kafka topics --list",
        "tally kafka console-producer --topic alog < app.log",
        "tally kafka console-consumer --topic alog --from-beginning --max-messages 5",
    ],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("tool", type=click.Choice(list(TOOLS)), metavar="TOOL")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def kafka(app: App, tool: str, arguments: tuple[str, ...]) -> None:
    """Run one of Kafka's own command-line tools.

    TOOL is topics, console-producer, console-consumer, consumer-groups, get-offsets, delete-records
    or configs.

    It gets the brokers of the configuration, and all ARGUMENTS as they are; --help is the tool's
    own. Brokers that ask for a password need the tool's option --command-config.
    """
    stack, servers = _stack(app), app.settings.kafka.bootstrap_servers
    stack.install()
    check_reachable(app.context.kafka, tool, arguments)
    program, *rest = kafka_tools.command(
        tool, arguments, servers=servers, jars=stack.kafka_jars_dir
    )
    os.execv(program, [program, *rest])  # noqa: S606 - no shell; the tool gets terminal and signals


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
    return tuple(Part(name) for name in names)


def _show(app: App, states: list[PartStatus]) -> None:
    app.out.table(
        ["PART", "STATE", "ADDRESS", "PID"],
        [[str(s.part), str(s.state), s.address or ABSENT, str(s.pid or ABSENT)] for s in states],
    )


def _make_ready(app: App, stack: Stack) -> None:
    """Tables and topics, then where everything is; the servers run whatever happens here."""
    from tally_local.first_use import directions, own_name, prepare  # noqa: PLC0415 - clients

    parts = stack.status()
    for what in prepare(app.settings, parts):
        app.out.note(what)
    app.out.line()
    for line in directions(app.settings, parts, stack.layout.credentials, own_name()):
        app.out.line(line)
