"""``up``, ``down``, ``demo``, ``kafka``: the local stack, and Kafka's own tools on the brokers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from tally.cli.app import App
from tally.cli.command import command
from tally.errors import ConfigError, UsageError
from tally.kafka.client import Kafka
from tally.spark.java import java
from tally_local.stack.server import Part, PartStatus
from tally_local.stack.stack import ALL_PARTS, USUAL_PARTS, Stack

TOOLS: Final[Mapping[str, str]] = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "configs": "kafka.admin.ConfigCommand",
}
"""The Java class of each tool, by its name without ``kafka-``."""

SERVER: Final = "--bootstrap-server"


_WITH_A_TOPIC: Final = frozenset({"console-producer", "console-consumer"})

parts_argument = click.argument(
    "parts", nargs=-1, metavar="[PART]...", type=click.Choice([str(part) for part in Part])
)


@command()
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

    Real servers, which the first call downloads, without root or Docker. Everything is in .tally
    beside the configuration, where all other commands find the addresses and passwords. PART is
    kafka, mysql, cluster, spark or airflow; by default all but the cluster. Spark is a Spark
    Connect server; after tally down spark each batch has a Spark of its own.

    Then the tables are migrated, and missing topics of the configured pipelines are created. A
    second call only shows the addresses, and the command that shows the passwords.

    Examples:
        tally up
        tally up kafka mysql
        tally up --cluster
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


@command()
@parts_argument
def down(app: App, parts: tuple[str, ...]) -> None:
    """Stop the local stack; its data stays.

    Stops exactly the processes that were started for this checkout, by any command. To delete the
    data, delete the folder .tally afterwards.

    Examples:
        tally down
        tally down airflow
    """
    stopped = _stack(app).down(_parts(parts) or ALL_PARTS)
    app.out.line(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


@command()
@click.option("--once", is_flag=True, help="Count twice, check the counts and stop.")
def demo(app: App, once: bool) -> None:
    """Count generated lines on the local stack and check the result.

    Servers that run already are used, and stopped at the end like all others.

    Examples:
        tally demo --once
    """
    from tally_local.demo.show import run  # noqa: PLC0415 - only this command needs it

    click.get_current_context().exit(run(_project(app), once=once))


@command(
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

    Examples:
        tally kafka topics --list
        tally kafka console-producer --topic alog < app.log
        tally kafka console-consumer --topic alog --from-beginning --max-messages 5
    """
    stack, servers = _stack(app), app.settings.kafka.bootstrap_servers
    stack.install()
    check_reachable(app.context.kafka, tool, arguments)
    program, *rest = command_line(tool, arguments, servers=servers, jars=stack.kafka_jars_dir)
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
    from tally.reading.columns import Column  # noqa: PLC0415 - brings the ledger

    keys = ("part", "state", "address", "pid")
    app.out.records([Column(key, "", key.upper()) for key in keys], states)


def _make_ready(app: App, stack: Stack) -> None:
    """Tables and topics, then where everything is; the servers run whatever happens here."""
    from tally_local.first_use import directions, own_name, prepare  # noqa: PLC0415 - clients

    parts = stack.status()
    for what in prepare(app.settings, parts):
        app.out.note(what)
    app.out.line()
    for line in directions(app.settings, parts, stack.layout.credentials, own_name()):
        app.out.line(line)


def check_reachable(kafka: Kafka, tool: str, arguments: Sequence[str]) -> None:
    """Raise where a tool would wait without a word: for a broker, or for a topic.

    Args:
        kafka: The configured brokers.
        tool: One of :data:`TOOLS`.
        arguments: The tool's own; with other brokers than the configured ones nothing is checked.

    Raises:
        TallyError: No broker answers, or they refuse.
        UsageError: A topic that is to be written or read does not exist.
    """
    if "--help" in arguments or value_of(SERVER, arguments) is not None:
        return
    topic = value_of("--topic", arguments) if tool in _WITH_A_TOPIC else None
    held = kafka.snapshot([] if topic is None else [topic])
    if topic is not None and topic not in held.topics:
        raise UsageError(
            f"Kafka has no topic {topic}",
            next_step=f"tally kafka topics --create --topic {topic} --partitions 4",
        )


def value_of(option: str, arguments: Sequence[str]) -> str | None:
    """What is given for an option, as ``--option value`` or ``--option=value``; None without it."""
    for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = argument.partition("=")
        if name == option:
            return value if equals else following
    return None


def command_line(tool: str, arguments: Sequence[str], *, servers: str, jars: Path) -> list[str]:
    """The command line that runs a tool.

    Args:
        tool: One of :data:`TOOLS`.
        arguments: The tool's own.
        servers: The brokers, unless the arguments name others.
        jars: The folder with Kafka's jars.

    Raises:
        StackError: Java is missing or too old.
    """
    where = [SERVER, servers] if value_of(SERVER, arguments) is None else []
    return [
        *(java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
        # Only the tool's own answer belongs on the terminal.
        "-Dorg.apache.logging.log4j.level=OFF",
        *("-cp", f"{jars}{os.sep}*", TOOLS[tool], *where, *arguments),
    ]
