"""Registers Tally's status page with Airflow; ``tally.airflow`` makes the page."""

import os
from pathlib import Path

from airflow.plugins_manager import AirflowPlugin

from tally.airflow.plugin import external_views, fastapi_apps
from tally.config.loading import CONFIG_NAME
from tally.config.variables import CONFIG_VARIABLE
from tally.packaged import folder_of

CONFIG = Path(os.environ.get(CONFIG_VARIABLE) or folder_of(__file__) / CONFIG_NAME).absolute()


class TallyPlugin(AirflowPlugin):
    """A read-only page: the position of each partition, open losses, the latest batches."""

    name = "tally"
    fastapi_apps = fastapi_apps(CONFIG)
    external_views = external_views()
