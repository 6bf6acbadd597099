"""Whether the engine that counts can be reached; cheap enough for every look at a pipeline."""

import socket
from typing import Final
from urllib.parse import urlsplit

from tally.config.servers import SparkSettings
from tally.errors import SparkUnavailableError
from tally.views import ErrorView

PATIENCE_S: Final = 3.0
_PORT: Final = 15002  # Spark Connect's own default


def engine_error(spark: SparkSettings) -> ErrorView | None:
    """Why the engine cannot be reached; None when it can, or when each run starts its own.

    Only a connection is opened; ``tally doctor`` checks the rest.
    """
    if not spark.is_connect:
        return None
    address = urlsplit(spark.master)
    try:
        host, port = address.hostname or "", address.port or _PORT
        with socket.create_connection((host, port), timeout=PATIENCE_S):
            return None
    except (OSError, ValueError) as error:  # a port or a name that is none
        unreachable = SparkUnavailableError(
            f"the Spark Connect server {address.netloc} cannot be reached: {error}",
            next_step="start it, or correct spark.master or the connection tally_spark",
        )
        return ErrorView.of(unreachable)
