"""The exceptions of Spark, and the sentence in them that names the cause."""

import re
from typing import Final

from pyspark.errors import PySparkException

# gRPC's sentence about a failed call to a Connect server.
_GRPC_DETAILS: Final = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)

# What Py4J writes before the exception of Java's: the call in which it was thrown.
_PY4J_CALL: Final = "An error occurred while calling "


def spark_errors() -> tuple[type[Exception], ...]:
    """The exception types of Spark, from the local JVM or from a Connect server."""
    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - pyspark-client comes without Py4J
    except ImportError:
        return PySparkException, ConnectionError
    return PySparkException, Py4JError, ConnectionError


def sentence_of(message: str) -> str:
    """One line of a message: gRPC's details, or else the first line that says something."""
    if details := _GRPC_DETAILS.search(message):
        return details.group(1)
    lines = (line.removeprefix(": ").strip() for line in message.splitlines())
    said = (line for line in lines if line and not line.startswith(_PY4J_CALL))
    # A call without an exception is what Py4J raises when the JVM has ended before its answer.
    is_cut = message.startswith(_PY4J_CALL)
    return next(said, "Spark's JVM ended before it answered" if is_cut else "no message")
