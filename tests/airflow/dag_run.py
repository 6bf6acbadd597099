"""A DAG run from its start to its end, and what Airflow has kept of it."""

import json
from collections.abc import Mapping
from typing import Any, Protocol

import pytest


class RunDag(Protocol):
    """Runs a DAG of the checkout with the world's configuration, to its end."""

    def __call__(
        self, dag_id: str, conf: Mapping[str, Any] | None = None, *, again: bool = False
    ) -> "Finished":
        """With ``again`` all tasks of the run before are cleared and run once more."""
        ...


class Finished:
    """A DAG run that has ended, as Airflow's own database tells it."""

    def __init__(self, run: Any) -> None:
        self.state = str(run.state.value if hasattr(run.state, "value") else run.state)
        instances = sorted(run.get_task_instances(), key=lambda ti: ti.map_index)
        self.tasks = {ti.task_id: str(ti.state) for ti in instances}
        self.run_id = run.run_id
        self._instances = [(ti.task_id, ti.rendered_map_index, ti.try_number) for ti in instances]
        self._dag_id = run.dag_id

    def names(self, task_id: str) -> list[str]:
        """The names of the instances of a mapped task, in order."""
        return [name for task, name, _ in self._instances if task == task_id]

    def tries(self, task_id: str) -> int:
        """How often a task was tried."""
        return max(number for task, _, number in self._instances if task == task_id)

    def xcom(self, task_id: str, key: str) -> Any:
        """An XCom of a task."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            row = session.scalars(
                XComModel.get_many(
                    run_id=self.run_id, dag_ids=self._dag_id, task_ids=task_id, key=key
                )
            ).first()
            return None if row is None else XComModel.deserialize_value(row)

    def events(self) -> dict[str, Any]:
        """The extras of the asset events of this run, by asset."""
        from airflow.models.asset import AssetEvent, AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            rows = session.execute(
                select(AssetModel.name, AssetEvent.extra)
                .join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
                .where(AssetEvent.source_run_id == self.run_id)
                .where(AssetEvent.source_dag_id == self._dag_id)
            )
            return dict(iter(rows))

    def stored(self) -> str:
        """Everything that Airflow has stored of the run's tasks: rendered fields and XComs."""
        from airflow.models.renderedtifields import RenderedTaskInstanceFields as Rendered
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            fields = session.scalars(select(Rendered).where(Rendered.run_id == self.run_id)).all()
            xcoms = session.scalars(select(XComModel).where(XComModel.run_id == self.run_id)).all()
            return json.dumps([[f.rendered_fields for f in fields], [x.value for x in xcoms]])


def use_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Define the connection to Spark in this process's own machine."""
    connection = {"conn_type": "spark", "host": "local[1]"}
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_SPARK", json.dumps(connection))
