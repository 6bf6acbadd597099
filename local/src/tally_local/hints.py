"""What the local stack tells the command line: which Airflow is its own, and how it is started."""

import os

from tally.cli.app import App
from tally.config.variables import CONFIG_VARIABLE, SECRETS_VARIABLE
from tally.errors import KafkaUnavailableError, MySQLUnavailableError
from tally_local.stack.home import Layout
from tally_local.stack.server import PartState
from tally_local.stack.stack import Stack

Unanswered = KafkaUnavailableError | MySQLUnavailableError


def say_what_starts_them(app: App, error: Unanswered) -> None:
    """Make ``tally up`` the error's next step if the local stack's server was stopped."""
    if error.is_unexplained and _was_taken_down(app, error):
        error.next_step = "tally up"


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
    mysql, kafka = app.settings.mysql, app.settings.kafka
    is_kafka = isinstance(error, KafkaUnavailableError)
    address = kafka.bootstrap_servers if is_kafka else f"{mysql.host}:{mysql.port}"
    parts = Stack(project=app.config_path.parent).status()
    return any(p.address == address and p.state is PartState.STOPPED for p in parts)
