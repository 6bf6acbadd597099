"""What is known of a pipeline besides the ledger and Kafka: the engine, and Airflow where asked."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tally.app.orchestration import Orchestration, ask_airflow, is_configured
from tally.app.views import ErrorView
from tally.config.servers import SparkSettings
from tally.config.settings import Settings
from tally.errors import SparkUnavailableError

PATIENCE_S: Final = 3.0
_PORT: Final = 15002  # Spark Connect's own default


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What is known of a pipeline's surroundings besides the ledger and Kafka."""

    paused: bool | None = None
    """Whether Airflow has paused its DAG; None where Airflow was not asked."""
    engine_error: ErrorView | None = None
    """Why the engine cannot count; None when it can, or was not asked."""


UNKNOWN: Final = Surroundings()
"""Neither Airflow nor the engine was asked."""


def look_around(
    settings: Settings, airflow: Mapping[str, str] | None = None
) -> Mapping[str, Surroundings]:
    """The surroundings of each pipeline that is right, by name.

    Args:
        settings: The configuration.
        airflow: Environment variables that say which Airflow to ask, besides this process's; None
            to ask none. Asking takes seconds.
    """
    answer = None
    if airflow is not None and is_configured({**os.environ, **airflow}):
        answer = ask_airflow(airflow, sorted(settings.pipelines))
    return surroundings(settings, answer)


def surroundings(settings: Settings, answer: Orchestration | None) -> Mapping[str, Surroundings]:
    """The same, with what Airflow has answered; None when it did not, or was not asked."""
    paused = (answer and answer.paused) or {}
    error = engine_error(settings.spark)
    return {
        name: Surroundings(paused=paused.get(name), engine_error=error)
        for name in settings.pipelines
    }


def engine_error(spark: SparkSettings) -> ErrorView | None:
    """Why the engine cannot be reached; None when it can, or when each run starts its own.

    Only a connection is opened, cheap enough for every look at a pipeline; ``tally doctor`` checks
    the rest.
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
