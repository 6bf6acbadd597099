"""The tasks of a DAG of the checkout, called one by one, outside of a scheduler."""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from tests.servers import PROJECT
from tests.world import World

JOB = PROJECT / "jobs" / "count_errors.py"


class _NoEvents(list[Any]):
    """The events of an asset that never had one."""

    def ascending(self, _: bool) -> "_NoEvents":
        return self

    def limit(self, _: int) -> "_NoEvents":
        return self


class Tasks:
    """The tasks of one run, triggered by Ann; what they hand on is kept here."""

    def __init__(
        self,
        world: World,
        suffix: str = "",
        conf: Mapping[str, Any] | None = None,
        *,
        run_id: str = "r",
    ) -> None:
        from airflow.sdk.execution_time.context import OutletEventAccessors

        from tally.airflow.factory import pipeline_dags

        dags = pipeline_dags(config=world.config, job=JOB, doc_md="test")
        self.dag = dags[world.name + suffix]
        for name, value in (conf or {}).items():
            self.dag.params[name] = value
        self.params = dict(self.dag.params.validate())
        self.events = OutletEventAccessors()
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.kept: dict[str, Any] = {}
        self._run = SimpleNamespace(
            dag_id=self.dag.dag_id,
            run_id=run_id,
            run_after=datetime.now(UTC),
            triggering_user_name="ann",
            conf=dict(conf or {}),
        )

    def task(self, task_id: str) -> Any:
        """The task of the DAG."""
        return self.dag.get_task(task_id)

    def run(self, task_id: str) -> Any:
        """Run a task; returns what it returns, or the tasks that it chooses or skips."""
        from airflow.sdk.exceptions import DownstreamTasksSkipped

        def push(key: str, value: Any) -> None:
            self.xcoms[task_id, key] = json.loads(json.dumps(value))  # as Airflow stores it

        def pull(task_ids: str, key: str = "return_value") -> Any:
            return self.xcoms.get((task_ids, key))

        of_run = {"dag_id": self._run.dag_id, "run_id": self._run.run_id, "map_index": -1}
        context: Any = {
            "ti": SimpleNamespace(**of_run, xcom_push=push, xcom_pull=pull),
            "dag_run": self._run,
            "params": self.params,
            "outlet_events": self.events,
            "inlet_events": defaultdict(_NoEvents),
            "task_state_store": SimpleNamespace(get=self.kept.get, set=self.kept.__setitem__),
        }
        task = self.task(task_id)
        try:
            result = getattr(task, "choose_branch", task.execute)(context)
        except DownstreamTasksSkipped as skipped:
            return list(skipped.tasks)
        push("return_value", result)
        return result


class Count(Tasks):
    """The task ``count`` of a replay, for one planned batch."""

    def __init__(self, world: World, batch_id: int) -> None:
        from tally.airflow.count import TallyCountOperator, count_options

        super().__init__(world)
        options = count_options(world.pipeline, config=world.config, job=JOB)
        self.operator = TallyCountOperator(batch=str(batch_id), **options)  # as Airflow renders it

    def task(self, _: str) -> Any:
        """The operator."""
        return self.operator

    def execute(self) -> None:
        """Run the task."""
        self.run("count")

    @property
    def outcome(self) -> dict[str, Any]:
        """What it has handed on."""
        return dict(self.xcoms["count", "outcome"])
