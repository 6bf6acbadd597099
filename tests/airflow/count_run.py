"""One execution of the task `count` outside of a scheduler."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.world import World

if TYPE_CHECKING:
    from tally.airflow.count import TallyCountOperator


class Run:
    """The task of the world's DAG, with the job it is to start."""

    def __init__(self, world: World, batch_id: int, job: Path) -> None:
        from airflow.sdk.execution_time.context import OutletEventAccessors

        from tally.airflow.factory import pipeline_dags

        dags = pipeline_dags(config=world.config, job=job, doc_md="test")
        self.operator: TallyCountOperator = dags[world.name].get_task("count")  # type: ignore[assignment]
        self.operator.application_args = ["--batch", str(batch_id)]  # as Airflow renders it
        self.events = OutletEventAccessors()
        self.pushed: dict[str, Any] = {}

    def execute(self) -> None:
        """Run the task."""
        ti: Any = SimpleNamespace(xcom_push=lambda key, value: self.pushed.update({key: value}))
        self.operator.execute({"ti": ti, "outlet_events": self.events})
