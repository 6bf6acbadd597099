"""Kafka's own command-line tools, on the configured brokers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tally.errors import UsageError
from tally.kafka.client import Kafka
from tally.spark.java import java

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


def command(tool: str, arguments: Sequence[str], *, servers: str, jars: Path) -> list[str]:
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
