"""Registers Tally's console with Airflow; ``tally.airflow.console`` has its pages."""

import os
from pathlib import Path

from airflow.plugins_manager import AirflowPlugin

from tally.airflow.plugin import external_views, fastapi_apps
from tally.config.loading import CONFIG_NAME
from tally.config.variables import CONFIG_VARIABLE
from tally.packaged import folder_of

CONFIG = Path(os.environ.get(CONFIG_VARIABLE) or folder_of(__file__) / CONFIG_NAME).absolute()


class TallyPlugin(AirflowPlugin):
    """Pages about each pipeline, and a tab on each run."""

    name = "tally"
    fastapi_apps = fastapi_apps(CONFIG)
    external_views = external_views()
