"""The buttons that Airflow shows beside a task."""

from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from tally.airflow.addresses import RUN_PATH


class PreviewLink(BaseOperatorLink):
    """From the preview of a replay to the page that shows it as a table."""

    name = "Preview"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """The page of the plugin."""
        query = urlencode({"dag_id": ti_key.dag_id, "run_id": ti_key.run_id})
        return f"{_path()}{RUN_PATH}?{query}"


class LossesLink(BaseOperatorLink):
    """From the red task to the DAG in which an operator decides about lost records."""

    name = "Decide losses"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """The DAG's page."""
        return f"{_path()}/dags/{quote(operator.losses_dag)}"


def _path() -> str:
    """The path of Airflow's base URL; a link without an origin uses the browser's."""
    return urlsplit(conf.get("api", "base_url", fallback="/") or "/").path.rstrip("/")
