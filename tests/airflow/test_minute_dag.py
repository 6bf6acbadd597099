"""The real DAGs, run by Airflow itself against Kafka, MySQL and (where marked) Spark."""

import pytest

from tally.ledger.decisions import accept_losses, find_losses
from tests.airflow.dag_run import RunDag, use_spark
from tests.world import World

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.stack,
    # Airflow's execution API imports svcs, which imports Starlette's test client in any case.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

ERROR = "2017-07-30 14:09:08 ERROR some message"
INFO = "2017-07-30 14:09:09 INFO all is well"


@pytest.mark.spark
def test_a_minute_counts_what_is_new(
    world: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the schedule to the table, with real Spark: counts, offsets, event, audit; no secret."""
    use_spark(monkeypatch)
    world.produce([ERROR, INFO, ERROR], 0)
    world.produce([ERROR, "garbage"], 1)
    run = run_dag(world.name)
    assert run.state == "success"
    assert run.tasks == {"plan": "success", "count": "success", "blocked": "skipped"}
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.offsets() == {0: (0, 3), 1: (0, 2)}
    (batch,) = world.batches()
    assert batch["requested_by"] == f"airflow:{world.name}"
    assert batch["run_id"]
    (event,) = run.events().values()
    seconds = event.pop("seconds_until")
    assert list(seconds) == ["planned", "claimed", "read", "committed"]
    assert all(step >= 0 for step in seconds.values())
    assert run.events().keys() == {f"tally_{world.name}"}
    assert event == {
        "batch_ids": [batch["batch_id"]],
        "ranges": [f"{world.topic}/0 [0, 3)", f"{world.topic}/1 [0, 2)"],
        "records": 5,
        "matched": 3,
        "malformed": 1,
    }
    assert world.settings.mysql.password.get_secret_value() not in run.stored()
    assert run_dag(f"{world.name}_audit").state == "success"


@pytest.mark.spark
def test_a_backlog_is_counted_within_one_run(
    world: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch after batch up to its end, by one driver; the event tells of all of them."""
    use_spark(monkeypatch)
    world.configure(max_records_per_partition=2)
    world.produce([ERROR] * 5, 0)
    run = run_dag(world.name)
    assert run.state == "success"
    assert world.counts() == {"2017-07-30 14:09": 5}
    first, *behind = world.batches()
    assert [b["run_id"] for b in behind] == [first["run_id"]] * 2
    (event,) = run.events().values()
    assert event["followed_by"] == [b["batch_id"] for b in behind]
    assert event["ranges"] == [f"{world.topic}/0 {r}" for r in ("[0, 2)", "[2, 4)", "[4, 5)")]
    assert (event["batch_ids"], event["records"], event["matched"]) == ([first["batch_id"]], 5, 5)
    assert world.audit().holds


def test_nothing_new_ends_green_and_says_so(world: World, run_dag: RunDag) -> None:
    """No batch, no Spark, not even a connection to it; the plan says why."""
    run = run_dag(world.name)
    assert run.state == "success"
    assert run.tasks == {"plan": "success", "count": "skipped", "blocked": "skipped"}
    assert run.xcom("plan", "batch")["text"] == f"nothing new in {world.topic}"
    assert world.batches() == []
    assert run.events() == {}


@pytest.mark.usefixtures("stand_in")
def test_a_blocked_partition_makes_the_run_red_and_the_others_are_counted(
    world: World, run_dag: RunDag
) -> None:
    """Until an operator accepts the loss, at each run; then the runs are green again."""
    world.produce([INFO] * 2, 0)
    world.produce([INFO] * 2, 1)
    assert run_dag(world.name).state == "success"
    world.produce([INFO] * 3, 0)
    world.produce([INFO] * 3, 1)
    world.delete_records(1, before=4)

    red = run_dag(world.name)
    assert red.state == "failed"
    assert red.tasks == {"plan": "success", "count": "success", "blocked": "failed"}
    assert world.offsets() == {0: (0, 5), 1: (0, 2)}
    assert "[partitions-blocked]" in red.xcom("plan", "batch")["blocked"]
    assert "[2, 4) was never counted" in red.xcom("plan", "batch")["blocked"]

    still_red = run_dag(world.name)
    assert still_red.tasks == {"plan": "success", "count": "skipped", "blocked": "failed"}
    assert still_red.state == "failed"

    with world.database.transaction() as tx:
        accept_losses(tx, world.name, find_losses(tx, world.name), by="ann", reason="a test")
    assert run_dag(world.name).state == "success"
    assert world.offsets() == {0: (0, 5), 1: (0, 5)}


@pytest.mark.usefixtures("stand_in")
def test_a_failed_count_makes_the_run_red(
    world: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though `blocked` was skipped; the next run resumes the batch."""
    world.produce([INFO], 0)
    monkeypatch.setenv("STAND_IN", "exit=4")
    red = run_dag(world.name)
    assert red.tasks == {"plan": "success", "count": "failed", "blocked": "skipped"}
    assert red.state == "failed"
    assert red.events() == {}

    monkeypatch.setenv("STAND_IN", "commit")
    green = run_dag(world.name)
    assert green.state == "success"
    assert green.xcom("plan", "batch")["batch_ids"] == red.xcom("plan", "batch")["batch_ids"]
    assert [batch["state"] for batch in world.batches()] == ["committed"]


@pytest.mark.usefixtures("stand_in")
def test_a_batch_of_another_planner_is_resumed(world: World, run_dag: RunDag) -> None:
    """With its planned ranges; later records wait for the next run."""
    world.produce([INFO] * 3, 0)
    planned = world.plan().batch
    assert planned is not None
    world.produce([INFO] * 4, 0)
    first = run_dag(world.name)
    assert first.xcom("plan", "batch")["batch_ids"] == [planned.batch_id]
    assert "is resumed" in first.xcom("plan", "batch")["text"]
    assert world.offsets()[0] == (0, 3)
    assert run_dag(world.name).xcom("plan", "batch")["ranges"] == [f"{world.topic}/0 [3, 7)"]


def test_a_missing_topic_is_red_with_its_own_error(world: World, run_dag: RunDag) -> None:
    """Nothing to count, and an operator must act."""
    world.configure(topics=["there-is-no-such-topic"])
    run = run_dag(world.name)
    assert run.state == "failed"
    assert run.tasks == {"plan": "success", "count": "skipped", "blocked": "failed"}
    assert "[topic-missing]" in run.xcom("plan", "batch")["blocked"]


@pytest.mark.usefixtures("stand_in")
def test_an_audit_with_a_violation_is_red(world: World, run_dag: RunDag) -> None:
    """A result that is not what was counted does not go unnoticed."""
    world.produce([INFO], 0)
    assert run_dag(world.name).state == "success"
    assert run_dag(f"{world.name}_audit").state == "success"
    world.execute(f"insert into `{world.name}` values ('2017-07-30 14:09:00', 1)")
    red = run_dag(f"{world.name}_audit")
    assert red.state == "failed"
    assert red.tasks == {"audit": "failed", "prune": "upstream_failed"}


@pytest.mark.usefixtures("stand_in")
def test_what_is_old_and_gone_from_kafka_is_pruned_daily(world: World, run_dag: RunDag) -> None:
    """What Kafka still holds stays, however old; and so does what is younger than the limit."""
    for _ in range(3):
        world.produce([INFO] * 2, 0)
        assert run_dag(world.name).state == "success"
    world.delete_records(0, before=4)
    first, _, third = (batch["batch_id"] for batch in world.batches())
    world.execute(
        "update batch set committed_at = committed_at - interval 15 day where batch_id in (%s, %s)",
        (first, third),
    )
    run = run_dag(f"{world.name}_audit")
    assert run.state == "success"
    assert run.xcom("prune", "return_value") == {"partitions": 1, "segments": 1, "rows": 2}
    assert run_dag(f"{world.name}_audit").xcom("prune", "return_value")["segments"] == 0
    assert world.audit().holds
