"""What the local stack tells the command line: which Airflow is its own, and how it is started."""

import os
from typing import Final

from tally.cli.app import App
from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.errors import KafkaUnavailableError, MySQLUnavailableError
from tally_local.stack.home import Layout
from tally_local.stack.ports import LOOPBACK, Ports
from tally_local.stack.processes import Processes
from tally_local.stack.server import Part

Unanswered = KafkaUnavailableError | MySQLUnavailableError

UP: Final = "tally up"


def say_what_starts_them(app: App, error: Unanswered) -> None:
    """Make ``tally up`` the error's next step if the local stack's server was stopped."""
    if error.is_unexplained and _was_taken_down(app, error):
        error.next_step = UP


def airflow_environment(app: App) -> dict[str, str]:
    """What makes Airflow's programs use the stack's Airflow; nothing before its first start.

    An Airflow of the caller's own has precedence.
    """
    layout = Layout(app.config_path.parent)
    if "AIRFLOW_HOME" in os.environ or not (layout.airflow / "airflow.cfg").is_file():
        return {}
    return {
        "AIRFLOW_HOME": str(layout.airflow),
        CONFIG_VARIABLE: str(app.config_path),
        SECRETS_VARIABLE: str(layout.overlay),
    }


def _was_taken_down(app: App, error: Unanswered) -> bool:
    settings, layout = app.settings, Layout(app.config_path.parent)
    if isinstance(error, KafkaUnavailableError):
        part, address = Part.KAFKA, settings.kafka.bootstrap_servers
    else:
        part, address = Part.MYSQL, f"{settings.mysql.host}:{settings.mysql.port}"
    port = Ports(layout.ports).remembered().get(part)
    is_local = port is not None and address == f"{LOOPBACK}:{port}"
    return is_local and Processes(run=layout.run, logs=layout.logs).record(part) is None
