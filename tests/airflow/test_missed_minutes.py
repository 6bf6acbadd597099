"""Minutes in which no run counted, and runs that are repeated long afterwards."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pendulum
import pytest

from tests.airflow.dag_run import RunDag
from tests.world import World

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

pytestmark = [
    pytest.mark.airflow,
    # Airflow's execution API imports svcs, which imports Starlette's test client in any case.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

INFO = "2017-07-30 14:09:09 INFO all is well"
MINUTE = timedelta(minutes=1)
LAST_RUN = pendulum.datetime(2026, 11, 20, 9, 0)


@pytest.mark.parametrize(
    ("missed", "why"),
    [(timedelta(hours=1), "scheduler down"), (timedelta(days=3), "DAG paused")],
    ids=str,
)
def test_after_a_stop_one_run_is_scheduled_and_not_one_for_each_missed_minute(
    bag: "DagBag", monkeypatch: pytest.MonkeyPatch, missed: timedelta, why: str
) -> None:
    """Airflow's own rule, asked of the DAG as the scheduler has stored it."""
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables import trigger
    from airflow.timetables.base import DagRunInfo

    assert why
    now = LAST_RUN + missed + timedelta(seconds=20)
    # Airflow's timetable takes the time from nowhere else.
    monkeypatch.setattr(trigger, "utcnow", lambda: now)
    dag: Any = DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["error_log"]))
    last = DagRunInfo.interval(LAST_RUN, LAST_RUN)
    first = dag.next_dagrun_info(last_automated_run_info=last)
    assert first.run_after == LAST_RUN + missed
    second = dag.next_dagrun_info(last_automated_run_info=first)
    assert second.run_after == LAST_RUN + missed + MINUTE


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_the_first_run_after_an_hour_counts_everything(world: World, run_dag: RunDag) -> None:
    """What came while the scheduler was down or the DAG paused, in old partitions and new ones."""
    world.produce([INFO] * 2)
    assert run_dag(world.name).state == "success"
    for _ in range(6):
        world.produce([INFO] * 10, 0)
        world.produce([INFO] * 10, 1)
    world.add_partitions(3)
    world.produce([INFO] * 5, 2)
    run = run_dag(world.name)
    assert run.state == "success"
    assert run.xcom("plan", "batch")["ranges"] == [
        f"{world.topic}/0 [2, 62)",
        f"{world.topic}/1 [0, 60)",
        f"{world.topic}/2 [0, 5)",
    ]
    assert world.offsets() == {0: (0, 62), 1: (0, 60), 2: (0, 5)}
    assert [batch["state"] for batch in world.batches()] == ["committed"] * 2
    assert world.audit().holds


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_a_run_that_is_cleared_days_after_its_success_counts_nothing_twice(
    world: World, run_dag: RunDag
) -> None:
    """Run again, it plans as any run does: nothing when nothing is new, else what is new."""
    world.produce([INFO] * 3)
    assert run_dag(world.name).state == "success"
    cleared = run_dag(world.name, again=True)
    assert cleared.tasks == {"plan": "success", "count": "skipped", "blocked": "skipped"}
    assert len(world.batches()) == 1
    world.produce([INFO] * 4)
    assert run_dag(world.name, again=True).state == "success"
    assert [(s["from_offset"], s["until_offset"], s["state"]) for s in world.segments()] == [
        (0, 3, "live"),
        (3, 7, "live"),
    ]
    assert world.audit().holds
