"""The exceptions of Spark, and the sentence in them that names the cause."""

import re
from typing import Final

from pyspark.errors import PySparkException

# gRPC's sentence about a failed call to a Connect server.
_GRPC_DETAILS: Final = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)


def spark_errors() -> tuple[type[Exception], ...]:
    """The exception types of Spark, from the local JVM or from a Connect server."""
    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - pyspark-client comes without Py4J
    except ImportError:
        return PySparkException, ConnectionError
    return PySparkException, Py4JError, ConnectionError


def has_lost_spark(error: Exception) -> bool:
    """Whether the local JVM has ended, and can no longer say why."""
    # Py4J's own errors carry no exception of Java's: its gateway got half an answer, or none.
    py4js_own = {"Py4JError", "Py4JNetworkError"}
    return isinstance(error, ConnectionError) or type(error).__name__ in py4js_own


def sentence_of(message: str) -> str:
    """One line of a message: gRPC's details, or else the first line."""
    if details := _GRPC_DETAILS.search(message):
        return details.group(1)
    return message.splitlines()[0].strip() if message else "no message"
