"""The paths of the plugin's pages, below Airflow's own address."""

from typing import Final

URL_PREFIX: Final = "/tally"
PREVIEW_PATH: Final = f"{URL_PREFIX}/preview"
