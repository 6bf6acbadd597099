"""The replay DAG, run by Airflow itself: preview, request, count, outcome."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from tally.app.batches import run_batches
from tally.ledger.batches import Requester
from tally.pipeline.context import Context, Reader
from tally.pipeline.replay import Requested, request_replay, run_or_replan
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import BoundsAsked
from tests.airflow import stand_in as program
from tests.airflow.dag_run import Finished, RunDag
from tests.proxy import Proxy, Session, statement_of
from tests.world import World

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.stack,
    # Airflow's execution API imports svcs, which imports Starlette's test client in any case.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

ERROR = "2017-07-30 14:09:08 ERROR some message"
WARN = "2017-07-30 14:09:08 WARN some message"
INFO = "2017-07-30 14:09:09 INFO all is well"

EVERYTHING = BoundsAsked()
DRY = {"reason": "a corrected level"}
REAL = {**DRY, "dry_run": False}
GREEN = {"preview": "success", "request": "success", "count": "success", "outcome": "success"}


@pytest.fixture
def counted(world: World, stand_in: None) -> World:
    """Two batches of three offsets each, one in each of two partitions."""
    for partition in (0, 1):
        world.produce([INFO] * 3, partition)
        batch = world.plan().batch
        assert batch is not None
        stand_in_for(world, batch.batch_id)
    return world


def replays(world: World) -> list[dict[str, Any]]:
    """The pipeline's replays, oldest first."""
    rows = world.rows("select * from replay where pipeline = %s order by replay_id", (world.name,))
    return [dict(row) for row in rows]


def shown(run: Finished) -> dict[str, Any]:
    """The XCom of the preview."""
    found: dict[str, Any] = run.xcom("preview", "preview")
    return found


@pytest.mark.spark
@pytest.mark.usefixtures("stand_in")
def test_a_replay_with_real_spark_replaces_what_was_counted(
    world: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another level: new counts replace the old; who, why and which run is in the ledger.

    Another replay has superseded segments of one of its batches, so the driver replans it.
    """
    monkeypatch.setenv("STAND_IN", "spark")
    world.produce([ERROR, WARN, WARN])
    assert run_dag(world.name).state == "success"
    world.configure(levels=["WARN"])

    other = ask_for(world.context(), world.name)
    # When the driver starts both have planned the same, and the other one commits.
    monkeypatch.setenv("STAND_IN", f"commit={other.batch_ids[0]},spark")
    run = run_dag(f"{world.name}_replay", REAL)
    assert (run.state, run.tasks) == ("success", GREEN)
    assert world.counts() == {"2017-07-30 14:09": 2}
    faster, ours = replays(world)
    assert faster["state"] == ours["state"] == "done"
    assert ours["requested_by"] == f"airflow:{world.name}_replay:dag_test"
    assert ours["reason"] == "a corrected level"
    assert ours["run_id"] == run.run_id
    batches = [b for b in world.batches() if b["replay_id"] == ours["replay_id"]]
    assert [b["state"] for b in batches] == ["abandoned", "committed"]
    (event,) = run.events().values()
    assert list(event.pop("seconds_until")) == ["claimed", "read", "committed"]
    assert run.events().keys() == {f"tally_{world.name}"}
    assert event == {
        "batch_ids": [batches[0]["batch_id"]],
        "ranges": [f"{world.topic}/0 [0, 3)"],
        "records": 3,
        "matched": 2,
        "malformed": 0,
        "replanned_as": [batches[1]["batch_id"]],
    }
    assert run.xcom("outcome", "outcome")["matched"] == 2
    outcome = run.xcom("outcome", "outcome")
    assert outcome["minutes"] == 1
    # The faster replay had taken the ERROR line already.
    assert (outcome["minutes_changed"], outcome["lines_more"], outcome["lines_fewer"]) == (1, 2, 0)
    assert outcome["changed"].endswith("2017-07-30 14:09: 2 lines more, 0 fewer")
    assert world.settings.mysql.password.get_secret_value() not in run.stored()
    assert world.audit().holds


def stand_in_for(world: World, batch_id: int) -> None:
    """Commit a batch without Spark."""
    program.commit(world.settings, batch_id)


def ask_for(ctx: Context, pipeline: str, asked: BoundsAsked = EVERYTHING) -> Requested:
    """Another replay than the DAG's, which commits first."""
    return request_replay(ctx, preview_replay(ctx, pipeline, asked), reason="faster")


@contextmanager
def tasks_by_way_of(proxy: Proxy) -> Iterator[None]:
    """Let the tasks reach MySQL through a proxy."""
    with proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TALLY_MYSQL__PORT", str(proxy.port))
        patch.setenv("TALLY_MYSQL__TLS", "disabled")
        yield


def test_a_dry_run_shows_and_writes_nothing(counted: World, run_dag: RunDag) -> None:
    """The default of the form; green."""
    run = run_dag(f"{counted.name}_replay", DRY)
    assert run.state == "success"
    assert run.tasks == {
        "preview": "success",
        "request": "skipped",
        "count": "skipped",
        "outcome": "skipped",
    }
    assert shown(run)["asked"] == [f"{counted.topic}/0:0-3", f"{counted.topic}/1:0-3"]
    assert shown(run)["rows"][0][:4] == [f"{counted.topic}/0", "[0, 3)", "3", "1 segment"]
    assert shown(run)["refused"] is None
    assert replays(counted) == []
    assert len(counted.batches()) == 2


@pytest.mark.usefixtures("stand_in")
def test_each_batch_is_a_task_with_a_name(counted: World, run_dag: RunDag) -> None:
    """One event each, with its ranges; the offsets of the schedule stay where they are."""
    counted.configure(max_records_per_partition=3)
    counted.produce([INFO] * 2)
    assert run_dag(counted.name).state == "success"
    run = run_dag(f"{counted.name}_replay", {**REAL, "topic": counted.topic, "partitions": "0"})
    assert (run.state, run.tasks) == ("success", GREEN)
    first, second = [b["batch_id"] for b in counted.batches() if b["replay_id"]]
    topic = counted.topic
    assert run.names("count") == [
        f"batch {first}: 3 offsets of {topic}/0",
        f"batch {second}: 2 offsets of {topic}/0",
    ]
    assert run.xcom("outcome", "outcome")["committed"] == 2
    assert counted.offsets() == {0: (0, 5), 1: (0, 3)}
    assert counted.audit().holds


@pytest.mark.parametrize(
    ("conf", "code", "said"),
    [
        ({"what": "offsets"}, "replay-refused", "neither from_offset nor until_offset"),
        (
            {"what": "offsets", "from_offset": 2, "until_offset": 9},
            "replay-refused",
            "counted up to 3 so far",
        ),
        ({"topic": "other"}, "replay-refused", "has not counted the topic other"),
        (
            {"what": "batch", "batch_id": 987654321},
            "batch-unknown",
            "the ledger has no batch 987654321",
        ),
    ],
)
def test_what_cannot_be_done_is_red_in_the_first_task(
    conf: dict[str, Any],
    code: str,
    said: str,
    counted: World,
    run_dag: RunDag,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At once, with the reason and the next step in one line of the log, and nothing is written."""
    run = run_dag(f"{counted.name}_replay", {**DRY, **conf})
    assert run.state == "failed"
    assert run.tasks["preview"] == "failed"
    assert run.tries("preview") == 1
    assert replays(counted) == []
    (sentence,) = [line for line in caplog.messages if said in line and "\n" not in line]
    assert sentence.startswith(f"[{code}] ")
    assert " Next: " in sentence


def test_a_partly_expired_request_says_what_to_fill_in_for_the_rest(
    counted: World, run_dag: RunDag, caplog: pytest.LogCaptureFixture
) -> None:
    """The words of the form; filled in so, the replay is done."""
    counted.delete_records(0, before=1)
    run = run_dag(
        f"{counted.name}_replay",
        {**REAL, "what": "offsets", "from_offset": 0, "until_offset": 3},
    )
    assert run.state == "failed"
    (sentence,) = [line for line in caplog.messages if "cannot be reprocessed" in line]
    ranges = f"{counted.topic}/1:0-3"
    assert sentence.endswith(
        "for what can be reprocessed of it, choose 'Several ranges of offsets' and fill in the"
        f" field Ranges: {ranges}"
    )
    again = run_dag(f"{counted.name}_replay", {**REAL, "what": "ranges", "ranges": ranges})
    assert again.state == "success"


def test_airflow_accepts_no_run_without_a_reason(counted: World, run_dag: RunDag) -> None:
    """Real or dry: a field is validated by itself."""
    from airflow.sdk.exceptions import ParamValidationError

    for conf in ({}, {"dry_run": False}, {**REAL, "reason": " "}):
        with pytest.raises(ParamValidationError, match="reason"):
            run_dag(f"{counted.name}_replay", conf)


def test_more_batches_than_airflow_maps_are_refused(
    counted: World,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Before a replay is recorded that no run could count."""
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    counted.configure(max_records_per_partition=1)
    counted.produce([INFO] * 2)
    assert run_dag(counted.name).state == "success"
    assert run_dag(counted.name).state == "success"
    assert run_dag(f"{counted.name}_replay", REAL).tasks["preview"] == "failed"
    assert "3 batches are more than the 1 tasks" in "".join(capfd.readouterr())
    assert replays(counted) == []


def test_a_run_that_is_cleared_writes_no_second_replay(counted: World, run_dag: RunDag) -> None:
    """All of its tasks once more: the same replay, and no batch is run again."""
    first = run_dag(f"{counted.name}_replay", REAL)
    again = run_dag(f"{counted.name}_replay", REAL, again=True)
    assert again.run_id == first.run_id
    assert (again.state, again.tasks) == ("success", GREEN)
    (replay,) = replays(counted)
    assert again.xcom("request", "replay_id") == replay["replay_id"]
    assert again.xcom("request", "return_value") == first.xcom("request", "return_value")
    other = run_dag(f"{counted.name}_replay", REAL)
    assert other.run_id != first.run_id
    assert len(replays(counted)) == 2


class DiesAfterTheRequest(Proxy):
    """Ends the connection after the one on which a replay was recorded; once."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, self._at_statement)
        self.written = 0
        """How often a replay was recorded."""
        self.cuts = 0

    def _at_statement(self, session: Session, packet: bytes) -> bool:
        statement = statement_of(packet)
        self.written += statement.startswith("insert into replay ")
        if self.written and not self.cuts and statement.startswith("start transaction"):
            self.cuts += 1
            return False
        session.server.sendall(packet)
        return True


def test_a_request_whose_answer_was_lost_is_found_again(counted: World, run_dag: RunDag) -> None:
    """It is recorded, then the task fails: the retry continues with the same replay."""
    mysql = counted.settings.mysql
    proxy = DiesAfterTheRequest(mysql.host, mysql.port)
    with tasks_by_way_of(proxy):
        run = run_dag(f"{counted.name}_replay", REAL)
    assert proxy.cuts == 1
    assert (run.state, run.tasks) == ("success", GREEN)
    assert run.tries("request") == 2
    (replay,) = replays(counted)
    assert replay["state"] == "done"
    assert proxy.written == 1


class RivalBeforeTheRequest(Proxy):
    """Runs another replay when a task asks a second time what its run has recorded.

    The preview asks first, the request second.
    """

    def __init__(self, world: World) -> None:
        mysql = world.settings.mysql
        super().__init__(mysql.host, mysql.port, self._at_statement)
        self._world, self._ctx = world, world.context()
        self.asked = 0

    def _at_statement(self, session: Session, packet: bytes) -> bool:
        if statement_of(packet).startswith("select replay_id from replay where"):
            self.asked += 1
            if self.asked == 2:
                other = ask_for(self._ctx, self._world.name, BoundsAsked(partitions=(0,)))
                program.commit(self._ctx.settings, other.batch_ids[0])
        session.server.sendall(packet)
        return True


def test_a_replay_that_no_longer_matches_its_preview_is_not_recorded(
    counted: World, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
) -> None:
    """Between preview and request another replay has replaced what was to be replaced."""
    proxy = RivalBeforeTheRequest(counted)
    with tasks_by_way_of(proxy):
        run = run_dag(f"{counted.name}_replay", REAL)
    assert proxy.asked == 2
    assert run.tasks["preview"] == "success"
    assert run.tasks["request"] == "failed"
    printed = "".join(capfd.readouterr())
    assert "is not what you saw any more" in printed
    assert "trigger the DAG again" in printed
    assert [replay["reason"] for replay in replays(counted)] == ["faster"]


def test_a_real_run_reprocesses_exactly_what_was_shown(
    counted: World, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was counted since is left out; what was replaced since is refused."""
    dag_id = f"{counted.name}_replay"
    seen = shown(run_dag(dag_id, DRY))
    bound = bound_to(seen)
    counted.produce([INFO] * 5, 0)
    batch = counted.plan().batch
    assert batch is not None
    stand_in_for(counted, batch.batch_id)
    run = run_dag(dag_id, bound)
    assert run.tasks == GREEN
    assert shown(run)["request"] == seen["request"]
    (replay,) = replays(counted)
    assert replay["request"] == seen["request"]
    assert run.xcom("outcome", "outcome")["records"] == 6
    again = run_dag(dag_id, bound)
    assert again.tasks["preview"] == "failed"
    assert "is not what you saw any more" in shown(again)["refused"]
    assert "preview it again" in "".join(capfd.readouterr())
    odd = run_dag(dag_id, {**REAL, "shown": {"asked": 7}})
    assert "`shown` is not of a preview" in shown(odd)["refused"]
    other = run_dag(dag_id, {**bound_to(shown(run_dag(dag_id, DRY))), "partitions": "1"})
    assert "`shown` is of a preview of another request" in shown(other)["refused"]
    assert len(replays(counted)) == 1


def bound_to(seen: dict[str, Any]) -> dict[str, Any]:
    """A real run of exactly what a preview has shown, as the console triggers it."""
    return {**REAL, "shown": {key: seen[key] for key in ("digest", "asked", "plan")}}


def test_a_real_run_under_other_rules_than_the_previews_is_refused(
    counted: World, run_dag: RunDag
) -> None:
    """The preview has said which levels are counted; those of today were not shown."""
    dag_id = f"{counted.name}_replay"
    seen = shown(run_dag(dag_id, DRY))
    counted.configure(levels=["ERROR", "INFO"])
    run = run_dag(dag_id, bound_to(seen))
    assert run.tasks["preview"] == "failed"
    assert "is not what you saw any more" in shown(run)["refused"]
    assert replays(counted) == []
    assert run_dag(dag_id, bound_to(shown(run_dag(dag_id, DRY)))).state == "success"


def test_a_failed_batch_leaves_the_run_red_until_it_is_cleared(
    counted: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`outcome` says what is left; cleared, the run finds its replay and counts it."""
    monkeypatch.setenv("STAND_IN", "exit=4")
    red = run_dag(f"{counted.name}_replay", REAL)
    assert red.state == "failed"
    assert red.tasks == {**GREEN, "count": "failed", "outcome": "failed"}
    assert red.xcom("outcome", "outcome")["committed"] == 0
    monkeypatch.setenv("STAND_IN", "commit")
    green = run_dag(f"{counted.name}_replay", REAL, again=True)
    assert (green.state, green.tasks) == ("success", GREEN)
    assert [replay["state"] for replay in replays(counted)] == ["done"]


def test_a_batch_that_was_replanned_by_a_driver_that_died_is_followed(
    counted: World, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task still has the old id; it counts and reports the batch that replaced it."""
    monkeypatch.setenv("STAND_IN", "exit=4")
    dag = f"{counted.name}_replay"
    run_dag(dag, REAL)
    ours = counted.batches()[-1]["batch_id"]
    other = ask_for(counted.context(), counted.name)
    stand_in_for(counted, other.batch_ids[0])

    readers = iter([nullcontext(program.StandInReader())])

    def open_reader() -> AbstractContextManager[Reader]:
        for reader in readers:
            return reader
        raise OSError("the driver dies")

    with pytest.raises(OSError, match="the driver dies"):
        run_or_replan(counted.context(open_reader=open_reader), [ours])
    replanned = counted.batches()[-1]["batch_id"]
    assert {b["batch_id"]: b["state"] for b in counted.batches()}[ours] == "abandoned"

    monkeypatch.setenv("STAND_IN", "replay")
    run = run_dag(dag, REAL, again=True)
    assert (run.state, run.tasks) == ("success", GREEN)
    told = run.events()[f"tally_{counted.name}"]
    assert (told["batch_ids"], told["replanned_as"]) == ([ours], [replanned])
    assert counted.audit().holds
    (replay,) = [one for one in replays(counted) if one["run_id"] == run.run_id]
    of_run = run_batches(counted.context(), counted.name, dag, run.run_id, replay["replay_id"])
    assert [batch.batch_id for batch in of_run.batches] == [replanned, ours]


def test_runs_whose_ids_differ_in_case_are_two(counted: World) -> None:
    """Airflow's ids do; the ledger's default collation does not tell them apart."""

    def asked(run_id: str, name: str) -> Context:
        return counted.context(requester=Requester(name=name, version="1", run_id=run_id))

    found = [
        ask_for(asked(run_id, name), counted.name).replay_id
        for run_id, name in (("manual__A", "airflow:d:Ann"), ("manual__a", "airflow:d:Ann"))
    ]
    other = ask_for(asked("manual__A", "airflow:d:ann"), counted.name).replay_id
    assert len({*found, other}) == 3
    again = ask_for(asked("manual__A", "airflow:d:Ann"), counted.name).replay_id
    assert again == found[0]
    batches = run_batches(counted.context(), counted.name, "d", "manual__a").batches
    assert {batch.replay_id for batch in batches} == {found[1]}


def test_a_batch_that_an_operator_abandoned_stays_abandoned(
    counted: World,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Its task is red, also after clearing, and says who abandoned it and why."""
    from tally.ledger.batches import abandon

    monkeypatch.setenv("STAND_IN", "exit=4")
    run_dag(f"{counted.name}_replay", REAL)
    with counted.database.transaction() as tx:
        abandon(tx, counted.batches()[-1]["batch_id"], by="ann", reason="a mistake")
    monkeypatch.setenv("STAND_IN", "replay")
    red = run_dag(f"{counted.name}_replay", REAL, again=True)
    assert red.tasks == {**GREEN, "count": "failed", "outcome": "failed"}
    printed = "".join(capfd.readouterr())
    assert "was abandoned by ann: a mistake" in printed
    assert "what it was to replace stays" in printed


def test_backfills_over_dates_are_refused(world: World, run_dag: RunDag, stand_in: None) -> None:
    """By Airflow, with its own message; the DAGs' descriptions name the replay."""
    from datetime import UTC, datetime

    from airflow.exceptions import DagRunTypeNotAllowed
    from airflow.models.backfill import ReprocessBehavior, _create_backfill

    def backfill(dag_id: str) -> None:
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

    assert run_dag(world.name).state == "success"
    for dag_id in (world.name, f"{world.name}_replay"):
        with pytest.raises(DagRunTypeNotAllowed, match="does not allow backfill runs"):
            backfill(dag_id)
