"""The addresses of the console, below Airflow's own."""

from typing import Final

URL_PREFIX: Final = "/tally"
RUN_PATH: Final = f"{URL_PREFIX}/run"
"""A run of one of Tally's DAGs: its batches, or its preview and what has become of the replay."""
