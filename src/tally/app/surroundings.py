"""What health needs to know besides the ledger and Kafka: the engine, and Airflow where asked."""

import os
from collections.abc import Mapping

from tally.app.engine import engine_error
from tally.app.health import Surroundings
from tally.app.orchestration import Orchestration, ask_airflow, is_configured
from tally.config.settings import Settings


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
