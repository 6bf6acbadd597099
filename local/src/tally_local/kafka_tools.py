"""Kafka's own command-line tools, on the configured brokers."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

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
    named = any(argument.partition("=")[0] == SERVER for argument in arguments)
    where = [] if named else [SERVER, servers]
    return [
        *(java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
        # Only the tool's own answer belongs on the terminal.
        "-Dorg.apache.logging.log4j.level=OFF",
        *("-cp", f"{jars}{os.sep}*", TOOLS[tool], *where, *arguments),
    ]
