"""What Spark says of its stages and tasks while a batch is counted."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Stages:
    """Spark's own report of the stages that begin after this object is created."""

    def __init__(self, spark: "SparkSession") -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._before = max((stage.stageId() for stage in self._all()), default=-1)

    def running(self) -> list[int]:
        """The ids of the task attempts that run now."""
        return [
            attempt.taskId()
            for stage in self._since()
            for attempt in _items(self._store().taskList(stage.stageId(), stage.attemptId(), 1000))
            if str(attempt.status()) == "RUNNING"
        ]

    def kill(self, task: int) -> None:
        """Kill a task attempt, as the loss of its executor would; Spark starts another."""
        self._context.killTaskAttempt(task, True, "a test")

    def killed(self) -> int:
        """How many attempts were killed."""
        return sum(int(stage.numKilledTasks()) for stage in self._since())

    def computed_again(self) -> int:
        """How many stage attempts were not the first."""
        return sum(stage.attemptId() > 0 for stage in self._since())

    def _since(self) -> list[Any]:
        return [stage for stage in self._all() if stage.stageId() > self._before]

    def _all(self) -> list[Any]:
        store = self._store()
        defaults = [getattr(store, f"stageList$default${n}")() for n in (2, 3, 4, 5)]
        return _items(store.stageList(None, *defaults))

    def _store(self) -> Any:
        self._context.listenerBus().waitUntilEmpty()
        return self._context.statusStore()


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(n) for n in range(sequence.size())]
