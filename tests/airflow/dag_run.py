"""A DAG run from its start to its end, and what Airflow has kept of it."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

AIRFLOW: Final = (
    pytest.mark.airflow,
    # Airflow's servers import svcs, which imports Starlette's test client in any case.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
)
"""The marks of a test that runs a DAG or asks the API server."""


class Finished:
    """A DAG run that has ended, as Airflow's own database tells it."""

    def __init__(self, run: Any) -> None:
        self.state = str(run.state)
        instances = sorted(run.get_task_instances(), key=lambda ti: ti.map_index)
        self.tasks = {ti.task_id: str(ti.state) for ti in instances}
        self.run_id = run.run_id
        self._names = [(ti.task_id, ti.rendered_map_index) for ti in instances]
        self._dag_id = run.dag_id

    def names(self, task_id: str) -> list[str]:
        """The names of the instances of a mapped task, in order."""
        return [name for task, name in self._names if task == task_id]

    def xcom(self, task_id: str, key: str) -> Any:
        """An XCom of a task."""
        from airflow.models.xcom import XComModel as XCom

        rows = rows_of(
            XCom.get_many(run_id=self.run_id, dag_ids=self._dag_id, task_ids=task_id, key=key)
        )
        return XCom.deserialize_value(rows[0][0]) if rows else None

    def events(self) -> dict[str, Any]:
        """The extras of the asset events of this run, by asset."""
        from airflow.models.asset import AssetEvent, AssetModel
        from sqlalchemy import select

        of_asset = AssetEvent.asset_id == AssetModel.id
        extras = select(AssetModel.name, AssetEvent.extra).join(AssetEvent, of_asset)
        of_run = (AssetEvent.source_run_id == self.run_id, AssetEvent.source_dag_id == self._dag_id)
        return {name: extra for name, extra in rows_of(extras.where(*of_run))}  # noqa: C416

    def stored(self) -> str:
        """Everything that Airflow has stored of the run's tasks: rendered fields and XComs."""
        from airflow.models.renderedtifields import RenderedTaskInstanceFields as Rendered
        from airflow.models.xcom import XComModel
        from sqlalchemy import select

        columns = ((Rendered, Rendered.rendered_fields), (XComModel, XComModel.value))
        of_run = [select(what).where(of.run_id == self.run_id) for of, what in columns]
        return json.dumps([[value for (value,) in rows_of(one)] for one in of_run])


RunDag = Callable[..., Finished]
"""Runs a DAG of the checkout with the world's configuration, to its end."""


def rows_of(statement: Any) -> list[Any]:
    """The rows of a query of Airflow's own database."""
    from airflow.utils.session import create_session

    with create_session() as session:
        return list(session.execute(statement))


def use_spark(monkeypatch: pytest.MonkeyPatch, master: str = "local[1]") -> None:
    """Define the connection to Spark, in this process's own machine by default."""
    connection = {"conn_type": "spark", "host": master}
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_SPARK", json.dumps(connection))
