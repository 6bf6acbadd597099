"""The DAGs of the schedule: whole runs by Airflow itself, and their tasks one by one."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException

from tally.airflow.minute_dag import TallyBlockedOperator
from tests.airflow.dag_run import AIRFLOW, RunDag, use_spark
from tests.airflow.tasks import Tasks
from tests.minute.steps import ERROR, accept, count
from tests.world import World

pytestmark = [*AIRFLOW, pytest.mark.stack]

INFO = "2017-07-30 14:09:09 INFO all is well"
DONE = {"count": "success", "blocked": "skipped", "complete": "skipped"}
COMPLETE = {"complete": "success"}
LAST_RUN = pendulum.datetime(2026, 11, 20, 9, 0)


@pytest.mark.spark
@pytest.mark.usefixtures("quiet_java")
def test_a_run_counts_what_is_new_batch_after_batch(
    world: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the schedule to the table, by one driver with real Spark, whose log has no noise."""
    printed: list[str] = []
    log = SimpleNamespace(info=lambda _, line: printed.append(line))
    monkeypatch.setattr("tally.airflow.driver.log", log)
    use_spark(monkeypatch)
    world.configure(max_records_per_partition=2)
    world.produce([ERROR, INFO, ERROR], 0)
    world.produce([ERROR, "garbage"], 1)
    run = run_dag(world.name)
    assert run.state == "success"
    assert run.tasks == DONE | COMPLETE
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.offsets() == {0: (0, 3), 1: (0, 2)}
    first, second = world.batches()
    assert first["requested_by"] == f"airflow:{world.name}"
    assert first["run_id"] == second["run_id"] == run.run_id
    events = run.events()
    assert events.keys() == {f"tally_{world.name}", f"tally_{world.name}_hours"}
    event = events[f"tally_{world.name}"]
    seconds = event.pop("seconds_until")
    assert list(seconds) == ["claimed", "read", "committed"]
    assert all(step >= 0 for step in seconds.values())
    assert printed
    assert [line for line in printed if not line.startswith("batch ")] == []
    ranges = [f"{world.topic}/{r}" for r in ("0 [0, 2)", "1 [0, 2)", "0 [2, 3)")]
    counts = {"records": 5, "matched": 3, "malformed": 1, "continuations": 0}
    batches = {"batch_ids": [first["batch_id"]], "followed_by": [second["batch_id"]]}
    assert event == {**batches, "ranges": ranges, **counts}
    assert world.settings.mysql.password.get_secret_value() not in run.stored()
    assert world.audit().holds


def test_nothing_new_ends_green_and_says_so(world: World, run_dag: RunDag) -> None:
    from airflow.exceptions import DagRunTypeNotAllowed
    from airflow.models.backfill import ReprocessBehavior, _create_backfill

    run = run_dag(world.name)
    assert run.state == "success"
    assert run.tasks == DONE | COMPLETE
    assert run.xcom("count", "plan")["text"] == f"nothing new in {world.topic}"
    assert world.batches() == []
    assert run.events().keys() == {f"tally_{world.name}_hours"}
    for dag_id in (world.name, f"{world.name}_replay"):
        with pytest.raises(DagRunTypeNotAllowed, match="does not allow backfill runs"):
            _create_backfill(
                dag_id=dag_id,
                from_date=datetime(2026, 1, 1, tzinfo=UTC),
                to_date=datetime(2026, 1, 2, tzinfo=UTC),
                max_active_runs=1,
                reverse=False,
                dag_run_conf=None,
                triggering_user_name="ann",
                reprocess_behavior=ReprocessBehavior.NONE,
            )
    # A missing topic is red with its own error: nothing to count, and an operator must act.
    world.configure(topics=["there-is-no-such-topic"])
    missing = Tasks(world)
    assert missing.run("count") == ["blocked", "complete"]
    assert "[topic-missing]" in missing.xcoms["count", "plan"]["blocked"]
    with pytest.raises(
        AirflowFailException, match=r"takes no configuration.* partition; .*_replay"
    ):
        Tasks(world, conf={"partition": 3}).run("count")
    for message, is_meant in (("tally losses accept p", True), ("tally topics adopt p", False)):
        with pytest.raises(AirflowFailException) as failed:
            TallyBlockedOperator(task_id="b", pipeline="p", message=message).execute({})
        assert ("trigger p_losses" in str(failed.value)) is is_meant


@pytest.mark.usefixtures("stand_in")
def test_a_blocked_partition_makes_the_run_red_and_the_others_are_counted(
    world: World, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
) -> None:
    """Until an operator accepts the loss, at each run; the task says where to do that."""
    for partition in (0, 1):
        world.produce([INFO] * 2, partition)
    world.minute()
    for partition in (0, 1):
        world.produce([INFO] * 3, partition)
    world.delete_records(1, before=4)

    red = run_dag(world.name)
    assert red.state == "failed"
    assert red.tasks == DONE | COMPLETE | {"blocked": "failed"}
    assert world.offsets() == {0: (0, 5), 1: (0, 2)}
    assert "[partitions-blocked]" in red.xcom("count", "plan")["blocked"]
    assert "[2, 4) was never counted" in red.xcom("count", "plan")["blocked"]
    assert f"trigger {world.name}_losses" in "".join(capfd.readouterr())
    assert red.xcom("blocked", "_link_LossesLink") == f"/dags/{world.name}_losses"

    assert Tasks(world).run("count") == ["blocked", "complete"]
    accept(world)
    assert Tasks(world).run("count") == ["complete"]
    assert world.offsets() == {0: (0, 5), 1: (0, 5)}


@pytest.mark.usefixtures("stand_in")
def test_a_failed_count_makes_the_run_red(
    world: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce([INFO], 0)
    monkeypatch.setenv("STAND_IN", "exit=4")
    red = run_dag(world.name)
    assert red.tasks == {"count": "failed"} | dict.fromkeys(
        ("blocked", "complete"), "upstream_failed"
    )
    assert red.state == "failed"
    assert red.events() == {}
    world.produce([INFO], 0)
    monkeypatch.setenv("STAND_IN", "commit")
    following = Tasks(world)
    assert following.run("count") == ["complete"]
    note = following.xcoms["count", "plan"]
    assert note["batch_ids"] == red.xcom("count", "plan")["batch_ids"]
    assert note["ranges"] == [f"{world.topic}/0 [0, 1)"]
    assert "is resumed" in note["text"]


@pytest.mark.usefixtures("stand_in")
def test_a_try_that_dies_behind_the_commit_is_told_by_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what that one counts itself; once it has ended well, no later one tells it again."""
    world.produce([INFO] * 3)
    tasks = Tasks(world)
    with monkeypatch.context() as patch:
        patch.setattr(
            "tally.airflow.telemetry.send_batches", Mock(side_effect=OSError("the worker dies"))
        )
        with pytest.raises(OSError, match="the worker dies"):
            tasks.run("count")
    assert (world.offsets(), dict(tasks.events)) == ({0: (0, 3), 1: (0, 0)}, {})
    world.produce([INFO] * 2)
    assert tasks.run("count") == ["complete"]
    told = tasks.xcoms["count", "outcome"]
    assert told["batch_ids"] == [batch["batch_id"] for batch in world.batches()]
    assert (len(told["batch_ids"]), told["records"]) == (2, 5)
    assert len(dict(tasks.events)) == 1
    for tries in (tasks, Tasks(world)):
        tries.xcoms.clear()
        assert tries.run("count") == ["complete"]
        assert list(tries.xcoms) == [("count", "plan"), ("count", "return_value")]


def test_an_audit_prunes_unless_it_finds_a_violation(world: World, run_dag: RunDag) -> None:
    """What Kafka still holds stays, however old; and so does what is younger than the limit."""
    count(world, *[[INFO] * 2] * 3)
    world.delete_records(0, before=4)
    first, _, third = (batch["batch_id"] for batch in world.batches())
    world.execute(
        "update batch set committed_at = committed_at - interval 15 day where batch_id in (%s, %s)",
        (first, third),
    )
    green = run_dag(f"{world.name}_audit")
    assert (green.state, green.tasks) == ("success", {"audit": "success", "prune": "success"})
    pruned = green.xcom("prune", "return_value")
    assert (pruned["partitions"], pruned["segments"]) == (1, 1)
    assert Tasks(world, "_audit").run("prune")["segments"] == 0
    assert world.audit().holds
    world.execute(f"insert into `{world.name}` values ('2017-07-30 14:09:00', 1)")
    red = run_dag(f"{world.name}_audit")
    assert (red.state, red.tasks) == ("failed", {"audit": "failed", "prune": "upstream_failed"})


# --- minutes in which no run counted, and runs that are repeated long afterwards


@pytest.mark.parametrize("missed", [timedelta(hours=1), timedelta(days=3)], ids=str)
def test_after_a_stop_one_run_is_scheduled_not_one_for_each_missed_minute(
    bag: DagBag, monkeypatch: pytest.MonkeyPatch, missed: timedelta
) -> None:
    """Airflow's own rule, asked of the DAG as the scheduler has stored it."""
    from airflow.serialization.serialized_objects import DagSerialization
    from airflow.timetables import trigger
    from airflow.timetables.base import DagRunInfo

    now = LAST_RUN + missed + timedelta(seconds=20)
    # Airflow's timetable takes the time from nowhere else.
    monkeypatch.setattr(trigger, "utcnow", lambda: now)
    dag: Any = DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["error_log"]))
    last = DagRunInfo.interval(LAST_RUN, LAST_RUN)
    first = dag.next_dagrun_info(last_automated_run_info=last)
    assert first.run_after == LAST_RUN + missed
    second = dag.next_dagrun_info(last_automated_run_info=first)
    assert second.run_after == LAST_RUN + missed + timedelta(minutes=1)


@pytest.mark.usefixtures("stand_in")
def test_a_run_that_is_cleared_days_after_its_success_counts_nothing_twice(
    world: World, run_dag: RunDag
) -> None:
    """Run again, it plans as any run does: nothing when nothing is new, else what is new."""
    world.produce([INFO] * 3)
    run = run_dag(world.name)
    event = run.events()[f"tally_{world.name}"]
    assert event == run.xcom("count", "outcome")
    assert list(event["seconds_until"]) == ["planned", "claimed", "read", "committed"]
    cleared = run_dag(world.name, again=True)
    assert cleared.tasks == DONE
    assert len(world.batches()) == 1
    world.produce([INFO] * 4)
    assert run_dag(world.name, again=True).state == "success"
    found = [(s["from_offset"], s["until_offset"], s["state"]) for s in world.segments()]
    assert found == [(0, 3, "live"), (3, 7, "live")]
    assert world.audit().holds
