"""The replay DAG: whole runs by Airflow itself, and its tasks one by one."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tally.context import Reader
from tally.counting.run import run_batches as count_batches
from tally.ledger.batches import Requester
from tally.planning.replay_request import BatchAsked
from tally.reading.batches import run_batches
from tests.airflow.dag_run import AIRFLOW, RunDag
from tests.airflow.stand_in import commit
from tests.airflow.tasks import Count, Tasks
from tests.minute import steps
from tests.world import World

pytestmark = [*AIRFLOW, pytest.mark.stack]

ERROR = "2017-07-30 14:09:08 ERROR some message"
WARN = "2017-07-30 14:09:08 WARN some message"
INFO = "2017-07-30 14:09:09 INFO all is well"

DRY = {"reason": "a corrected level"}
REAL = {**DRY, "dry_run": False}
GREEN = {"preview": "success", "request": "success", "count": "success", "outcome": "success"}
OUTDATED = "is not what you saw any more"


@pytest.fixture
def counted(world: World) -> World:
    """Two batches of three offsets each, one in each of two partitions, with a minute each."""
    for partition, line in enumerate((ERROR, ERROR.replace("14:09", "14:10"))):
        world.produce([line] * 3, partition)
        world.minute()
    return world


def previewed(world: World, conf: Mapping[str, Any], **options: Any) -> Tasks:
    run = Tasks(world, "_replay", conf, **options)
    run.run("preview")
    return run


def refused(world: World, conf: Mapping[str, Any], **options: Any) -> str:
    """Why the preview of a run fails for good, as the page of the run says it."""
    run = Tasks(world, "_replay", conf, **options)
    with pytest.raises(AirflowFailException):
        run.run("preview")
    return str(run.xcoms["preview", "preview"]["refused"])


def bound_to(run: Tasks) -> dict[str, Any]:
    """A real run of exactly what a preview has shown, as the console triggers it."""
    seen = run.xcoms["preview", "preview"]
    return {**REAL, "shown": {key: seen[key] for key in ("digest", "asked", "plan")}}


def test_a_dry_run_shows_and_writes_nothing(counted: World, run_dag: RunDag) -> None:
    run = run_dag(f"{counted.name}_replay", DRY)
    skipped = dict.fromkeys(("request", "count", "outcome"), "skipped")
    assert (run.state, run.tasks) == ("success", {"preview": "success", **skipped})
    shown = run.xcom("preview", "preview")
    assert shown["asked"] == [f"{counted.topic}/0:0-3", f"{counted.topic}/1:0-3"]
    assert shown["rows"][0][:4] == [f"{counted.topic}/0", "[0, 3)", "3", "1 segment"]
    assert shown["refused"] is None
    assert "counted by: the current rules: level ERROR; format fixed" in shown["says"]
    assert counted.replays() == []
    assert len(counted.batches()) == 2


@pytest.mark.usefixtures("stand_in")
def test_failed_batches_leave_the_run_red_until_it_is_cleared(
    counted: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is a task with a name; a cleared run finds its replay and counts what is left."""
    counted.configure(max_records_per_partition=3)
    steps.count(counted, [INFO] * 2)
    dag_id, conf = f"{counted.name}_replay", {**REAL, "topic": counted.topic, "partitions": "0"}
    monkeypatch.setenv("STAND_IN", "exit=4")
    red = run_dag(dag_id, conf)
    assert red.state == "failed"
    assert red.tasks == {**GREEN, "count": "failed", "outcome": "failed"}
    assert red.xcom("outcome", "outcome")["committed"] == 0
    monkeypatch.setenv("STAND_IN", "commit")
    green = run_dag(dag_id, conf, again=True)
    assert (green.state, green.tasks) == ("success", GREEN)
    (replay,) = counted.replays()
    assert (replay["state"], replay["run_id"]) == ("done", red.run_id)
    assert replay["requested_by"] == f"airflow:{dag_id}:dag_test"
    first, second = [b["batch_id"] for b in counted.batches() if b["replay_id"]]
    assert green.names("count") == [
        f"batch {first}: 3 offsets of {counted.topic}/0",
        f"batch {second}: 2 offsets of {counted.topic}/0",
    ]
    assert green.xcom("request", "return_value") == red.xcom("request", "return_value")
    assert green.xcom("outcome", "outcome")["committed"] == 2
    assert green.events().keys() == {f"tally_{counted.name}"}
    assert counted.settings.mysql.password.get_secret_value() not in green.stored()
    assert counted.offsets() == {0: (0, 5), 1: (0, 3)}
    assert counted.audit().holds
    previewed(counted, REAL, run_id="another").run("request")
    assert len(counted.replays()) == 2


def test_a_batch_that_was_replanned_by_a_driver_that_died_is_followed(world: World) -> None:
    """Another replay came first: the task has the old id and reports the batch that replaced it."""
    steps.count(world, [ERROR, WARN], [WARN])
    world.configure(levels=["WARN"])
    other = world.ask_replay(BatchAsked(batch_id=world.batches()[0]["batch_id"]))
    run = previewed(world, REAL)
    (ours,) = [int(batch["batch"]) for batch in run.run("request")]
    world.configure(levels=["DEBUG"])
    commit(world.settings, other.batch_ids[0])  # which takes the ERROR line away
    world.configure(levels=["WARN"])

    readers = iter([nullcontext(world.reader)])

    def open_reader() -> AbstractContextManager[Reader]:
        for reader in readers:
            return reader
        raise OSError("the driver dies")

    with pytest.raises(OSError, match="the driver dies"):
        list(count_batches(world.context(open_reader=open_reader), [ours]))
    replanned = world.batches()[-1]["batch_id"]
    assert {b["batch_id"]: b["state"] for b in world.batches()}[ours] == "abandoned"
    list(count_batches(world.context(world.reader), [ours]))

    count = Count(world, ours)
    count.execute()
    event = count.outcome
    assert list(event.pop("seconds_until")) == ["claimed", "read", "committed"]
    counts = {"records": 3, "matched": 2, "malformed": 0, "continuations": 0}
    batch = {"batch_ids": [ours], "replanned_as": [replanned]}
    assert event == {**batch, "ranges": [f"{world.topic}/0 [0, 3)"], **counts}
    run.run("outcome")
    outcome = run.xcoms["outcome", "outcome"]
    assert (outcome["matched"], outcome["minutes"]) == (2, 1)
    assert (outcome["minutes_changed"], outcome["lines_more"], outcome["lines_fewer"]) == (1, 2, 0)
    assert outcome["changed"].endswith("2017-07-30 14:09: 2 lines more, 0 fewer")
    assert world.counts() == {"2017-07-30 14:09": 2}
    faster, replay = world.replays()
    assert faster["state"] == replay["state"] == "done"
    dag_id = f"{world.name}_replay"
    of_run = run_batches(world.context(), world.name, dag_id, "r", replay["replay_id"])
    assert [batch.batch_id for batch in of_run] == [replanned, ours]
    assert world.audit().holds
    # In a ledger that was restored since, the number may be that of another replay.
    world.execute("update replay set run_id = 'another' where pipeline = %s", [world.name])
    with pytest.raises(AirflowFailException, match="restored to an older state"):
        run.run("outcome")
    # A run that was cleared may be refused where it was recorded before.
    run.xcoms["preview", "preview"] = {"refused": "no such pipeline"}
    with pytest.raises(AirflowFailException, match="no replay was recorded"):
        run.run("outcome")


def test_what_cannot_be_done_is_red_in_the_first_task(
    counted: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with the reason and the next step in one line of the log, and nothing is written."""
    for conf, code, said in (
        ({"what": "offsets"}, "replay-refused", "neither from_offset nor until_offset"),
        ({"what": "batch", "batch_id": 987654321}, "batch-unknown", "has no batch 987654321"),
    ):
        caplog.clear()
        assert said in refused(counted, {**DRY, **conf})
        (sentence,) = [line for line in caplog.messages if said in line and "\n" not in line]
        assert sentence.startswith(f"[{code}] ")
        assert " Next: " in sentence
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    counted.configure(max_records_per_partition=1)
    counted.produce([INFO] * 2)
    counted.minute()
    counted.minute()
    assert "3 batches are more than the 1 tasks" in refused(counted, REAL)
    assert counted.replays() == []


def test_a_partly_expired_request_says_what_to_fill_in_for_the_rest(counted: World) -> None:
    counted.delete_records(0, before=1)
    ranges = f"{counted.topic}/1:0-3"
    whole = {**REAL, "what": "offsets", "from_offset": 0, "until_offset": 3}
    assert refused(counted, whole).endswith(
        "for what can be reprocessed of it, choose 'Several ranges of offsets' and fill in the"
        f" field Ranges: {ranges}"
    )
    again = previewed(counted, {**REAL, "what": "ranges", "ranges": ranges})
    assert len(again.run("request")) == 1


def test_a_real_run_reprocesses_exactly_what_was_shown(counted: World) -> None:
    """What was counted since is left out; what was replaced since is refused."""
    seen, late = previewed(counted, DRY), previewed(counted, REAL, run_id="late")
    bound = bound_to(seen)
    steps.count(counted, [INFO] * 5)
    run = previewed(counted, bound)
    (batch,) = run.run("request")
    with pytest.raises(AirflowFailException, match="Next: clear the red tasks"):
        run.run("outcome")
    counted.run(int(batch["batch"]))
    run.run("outcome")
    (replay,) = counted.replays()
    assert replay["request"] == seen.xcoms["preview", "preview"]["request"]
    assert run.xcoms["outcome", "outcome"]["records"] == 6
    with pytest.raises(AirflowFailException, match=f"{OUTDATED}.* trigger the DAG again"):
        late.run("request")
    zero, one = (bound_to(previewed(counted, {**DRY, "partitions": at})) for at in "01")
    other = {**zero, "partitions": "1"}
    exchanged = {**other, "shown": {**zero["shown"], "digest": one["shown"]["digest"]}}
    for conf, said in (
        (exchanged, OUTDATED),
        (bound, f"{OUTDATED} Next: preview it again"),
        (other, "`shown` is of a preview of another request"),
    ):
        assert said in refused(counted, conf, run_id="another")
    assert len(counted.replays()) == 1


def test_a_real_run_under_other_rules_than_the_previews_is_refused(counted: World) -> None:
    """The preview has said which levels are counted; those of today were not shown."""
    bound = bound_to(previewed(counted, DRY))
    counted.configure(levels=["ERROR", "INFO"])
    assert OUTDATED in refused(counted, bound)
    assert counted.replays() == []
    assert previewed(counted, bound_to(previewed(counted, DRY))).run("request")


def test_runs_whose_ids_differ_in_case_are_two(counted: World) -> None:
    """Airflow's ids do; the ledger's default collation does not tell them apart."""

    def asked(run_id: str, name: str) -> int:
        requester = Requester(name=name, version="1", run_id=run_id)
        requested = counted.through(requester=requester).ask_replay()
        for batch_id in [b["batch_id"] for b in counted.batches() if b["state"] == "planned"]:
            steps.abandoned(counted, batch_id)
        return requested.replay_id

    upper = asked("manual__A", "airflow:d:Ann")
    lower = asked("manual__a", "airflow:d:Ann")
    assert len({upper, lower, asked("manual__A", "airflow:d:ann")}) == 3
    assert asked("manual__A", "airflow:d:Ann") == upper
    batches = run_batches(counted.context(), counted.name, "d", "manual__a")
    assert {batch.replay_id for batch in batches} == {lower}
