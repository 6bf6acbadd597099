"""What Spark raises, and the sentence in it that says what went wrong."""

import re
from typing import Final

from pyspark.errors import PySparkException

# Where gRPC says in a sentence what went wrong between here and a Connect server.
_GRPC_DETAILS: Final = re.compile(r'^\s*details = "(.*)"$', re.MULTILINE)


def spark_errors() -> tuple[type[Exception], ...]:
    """What Spark raises, from the JVM beside Python or from a Connect server."""
    try:
        from py4j.protocol import Py4JError  # noqa: PLC0415 - the Connect client alone has no Py4J
    except ImportError:
        return PySparkException, ConnectionError
    return PySparkException, Py4JError, ConnectionError


def sentence_of(words: str) -> str:
    """One line of all that was said: gRPC's details, or else the first one."""
    if details := _GRPC_DETAILS.search(words):
        return details.group(1)
    return words.splitlines()[0].strip() if words else "no words"
