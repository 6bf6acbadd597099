"""The losses DAG, run by Airflow itself, with an operator who answers as the web page does."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tally.airflow.losses_work import open_losses, settle
from tally.errors import UsageError
from tally.mysql.errors import CommitUnansweredError
from tally.mysql.transactions import Database
from tally.testing.statements import at_statement
from tests.airflow.dag_run import RunDag
from tests.proxy import CommitProxy, Cut
from tests.world import World

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.stack,
    # Airflow's execution API imports svcs, which imports Starlette's test client in any case.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

INFO = "2017-07-30 14:09:09 INFO all is well"
GREEN = {"look": "success", "decide": "success", "settle": "success"}


@pytest.fixture
def lossy(world: World, run_dag: RunDag, stand_in: None) -> World:
    """Two offsets of partition 1 went before they were counted, and a run has seen it."""
    world.produce([INFO] * 2, 1)
    assert run_dag(world.name).state == "success"
    world.produce([INFO] * 3, 1)
    world.delete_records(1, before=4)
    assert run_dag(world.name).state == "failed"
    return world


@contextmanager
def person(dag_id: str, answer: str, reason: str, first: Callable[[], None]) -> Iterator[list[Any]]:
    """Ann, who answers the question as soon as it is asked, with Airflow's own handler.

    Yields:
        The questions that she was asked.
    """
    asked: list[Any] = []
    over = threading.Event()

    def wait_and_answer() -> None:
        while not over.is_set():
            if (question := _open_question(dag_id)) is not None:
                asked.append(question)
                first()
                _answer(dag_id, question.run_id, answer, reason)
                return
            time.sleep(0.2)

    thread = threading.Thread(target=wait_and_answer)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join()


def _open_question(dag_id: str) -> SimpleNamespace | None:
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = session.scalars(
            select(HITLDetail)
            .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            .where(TaskInstance.dag_id == dag_id, TaskInstance.state == "awaiting_input")
        ).first()
        if found is None or found.response_received:
            return None
        return SimpleNamespace(
            run_id=found.task_instance.run_id, subject=found.subject, body=found.body
        )


def _answer(dag_id: str, run_id: str, answer: str, reason: str) -> None:
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
    from airflow.utils.session import create_session

    ann: Any = SimpleNamespace(get_id=lambda: "ann", get_name=lambda: "ann")
    payload = UpdateHITLDetailPayload(chosen_options=[answer], params_input={"reason": reason})
    with create_session() as session:
        update_hitl_detail(dag_id, run_id, "decide", payload, ann, session)


def losses(world: World) -> list[dict[str, Any]]:
    """The pipeline's lost ranges."""
    rows = world.rows(
        "select l.* from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s order by lost_range_id",
        (world.name,),
    )
    return [dict(row) for row in rows]


def ask(
    world: World,
    run_dag: RunDag,
    answer: str,
    reason: str = "retention was too short",
    first: Callable[[], None] = lambda: None,
) -> tuple[Any, list[Any]]:
    """Run the DAG with Ann at hand."""
    dag_id = f"{world.name}_losses"
    with person(dag_id, answer, reason, first) as asked:
        run = run_dag(dag_id)
    return run, asked


def test_without_open_losses_nobody_is_asked(world: World, run_dag: RunDag) -> None:
    """Green, and it says so."""
    run = run_dag(f"{world.name}_losses")
    assert run.state == "success"
    assert run.tasks == {"look": "success", "decide": "skipped", "settle": "skipped"}
    assert run.xcom("look", "losses")["text"] == f"{world.name} has no open losses"


def test_after_an_accepted_loss_counting_continues(lossy: World, run_dag: RunDag) -> None:
    """The ledger has the answer, operator, time and reason; the next run is green."""
    run, asked = ask(lossy, run_dag, "Accept the losses")
    assert (run.state, run.tasks) == ("success", GREEN)
    (question,) = asked
    assert question.subject == f"Records of {lossy.name} are lost"
    assert f"{lossy.topic}/1 | 2 | [2, 4) was never counted" in question.body
    (loss,) = losses(lossy)
    assert loss["state"] == "accepted"
    assert loss["decided_by"] == f"airflow:{lossy.name}_losses:ann"
    assert loss["reason"] == "retention was too short"
    assert loss["decided_at"] is not None
    assert lossy.settings.mysql.password.get_secret_value() not in run.stored()
    assert run_dag(lossy.name).state == "success"
    assert lossy.offsets()[1] == (0, 5)
    assert lossy.audit().holds


def seen(world: World) -> list[dict[str, Any]]:
    """The open losses as the console shows them."""
    return open_losses(world.context(), world.name).losses


@pytest.mark.parametrize(("decision", "state"), [("accept", "accepted"), ("keep", "open")])
def test_a_decision_may_come_with_the_trigger(
    decision: str, state: str, lossy: World, run_dag: RunDag
) -> None:
    """Then nobody is asked: the console has shown the losses, and asked for the reason."""
    conf = {"decision": decision, "seen": seen(lossy), "reason": " the backup is gone "}
    run = run_dag(f"{lossy.name}_losses", conf)
    assert (run.state, run.tasks) == ("success", {**GREEN, "decide": "skipped"})
    (loss,) = losses(lossy)
    assert (loss["state"], loss["reason"]) == (state, "the backup is gone")
    assert loss["decided_by"].startswith(f"airflow:{lossy.name}_losses:")
    assert run.xcom("settle", "return_value").startswith(
        "accepted by" if state == "accepted" else "left"
    )
    assert run_dag(lossy.name).state == ("success" if decision == "accept" else "failed")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"reason": "  "}, "there is no reason"),
        ({"seen": []}, "`seen` names no loss"),
        ({"seen": ["x"]}, "`seen` is not what a page or a question has shown"),
        ({"seen": [{"lost_range_id": [1]}]}, "`seen` is not what a page or a question has shown"),
        ({"seen": [{"lost_range_id": 1}]}, "no longer as they were shown"),
    ],
)
def test_a_decision_that_is_not_whole_decides_nothing(
    changed: dict[str, Any],
    said: str,
    lossy: World,
    run_dag: RunDag,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Red, with what to do next."""
    conf = {"decision": "accept", "seen": seen(lossy), "reason": "r", **changed}
    run = run_dag(f"{lossy.name}_losses", conf)
    assert (run.state, run.tasks["settle"]) == ("failed", "failed")
    (loss,) = losses(lossy)
    assert (loss["state"], loss["decided_by"]) == ("open", None)
    assert said in "".join(capfd.readouterr())
    assert said in run.xcom("settle", "refused")


def test_a_loss_that_is_kept_blocked_keeps_the_answer(lossy: World, run_dag: RunDag) -> None:
    """Runs stay red, and the next question shows who left it open, and why."""
    run, _ = ask(lossy, run_dag, "Keep them blocked", "the backup is being restored")
    assert (run.state, run.tasks) == ("success", GREEN)
    (loss,) = losses(lossy)
    assert (loss["state"], loss["reason"]) == ("open", "the backup is being restored")
    assert loss["decided_by"] == f"airflow:{lossy.name}_losses:ann"
    assert run_dag(lossy.name).state == "failed"
    _, asked = ask(lossy, run_dag, "Keep them blocked", "still")
    assert "was left open by" in asked[0].body
    assert "the backup is being restored" in asked[0].body
    assert lossy.audit().holds


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("accept", [True, False])
def test_an_answer_whose_commit_was_not_answered_is_given_again(
    lossy: World, accept: bool, cut: Cut
) -> None:
    """As the task's retry does: whether it was applied or not, the outcome is the same."""
    mysql, shown = lossy.settings.mysql, open_losses(lossy.context(), lossy.name).losses
    give = partial(settle, pipeline=lossy.name, shown=shown, accept=accept, by="ann", reason="r")
    with CommitProxy(mysql.host, mysql.port, cut) as proxy:
        broken = mysql.model_copy(update={"port": proxy.port, "tls": "disabled"})
        with pytest.raises(CommitUnansweredError):
            give(lossy.context(database=Database(settings=broken)))
        assert proxy.fired == 1
    words = "accepted" if accept else "left open"
    assert give(lossy.context()).startswith(f"{words} by ann: {lossy.topic}/1 [2, 4); ")
    (loss,) = losses(lossy)
    assert (loss["state"], loss["decided_by"]) == ("accepted" if accept else "open", "ann")
    assert lossy.offsets()[1] == (0, 4 if accept else 2)
    assert lossy.audit().holds


def test_an_answer_that_is_applied_while_it_is_given_again_holds_once(lossy: World) -> None:
    """The server applies the earlier try's COMMIT after this try has read and before it locks."""
    shown = open_losses(lossy.context(), lossy.name).losses
    give = partial(settle, pipeline=lossy.name, shown=shown, accept=True, by="ann", reason="r")
    said: list[str] = []
    listen = at_statement("from pipeline .* for update", lambda: said.append(give(lossy.context())))
    said.append(give(lossy.context(database=replace(lossy.database, listen=listen))))
    assert said[0] == said[1]
    assert said[0].startswith(f"accepted by ann: {lossy.topic}/1 [2, 4); ")
    assert [loss["state"] for loss in losses(lossy)] == ["accepted"]
    assert lossy.offsets()[1] == (0, 4)
    assert lossy.audit().holds


@pytest.mark.parametrize("other", [{"by": "bob"}, {"reason": "another"}, {"accept": False}])
def test_another_answer_than_the_one_that_was_given_is_refused(
    lossy: World, other: dict[str, Any]
) -> None:
    """Who accepted it, and why, stays in the ledger as it was."""
    shown = open_losses(lossy.context(), lossy.name).losses
    mine = {"accept": True, "by": "ann", "reason": "r"}
    settle(lossy.context(), lossy.name, shown, **mine)
    with pytest.raises(UsageError, match="another operator has decided it"):
        settle(lossy.context(), lossy.name, shown, **{**mine, **other})
    (loss,) = losses(lossy)
    assert (loss["state"], loss["decided_by"], loss["reason"]) == ("accepted", "ann", "r")


@pytest.mark.parametrize("accept", [True, False])
def test_a_loss_that_another_operator_keeps_blocked_meanwhile_is_not_decided(
    accept: bool, lossy: World
) -> None:
    """Bob is having the backup restored: an older page must not decide over him, unread."""
    shown = open_losses(lossy.context(), lossy.name).losses
    settle(lossy.context(), lossy.name, shown, accept=False, by="bob", reason="being restored")
    with pytest.raises(UsageError, match="another operator has decided it"):
        settle(lossy.context(), lossy.name, shown, accept=accept, by="ann", reason="r")
    (loss,) = losses(lossy)
    assert (loss["state"], loss["decided_by"]) == ("open", "bob")
    now = open_losses(lossy.context(), lossy.name).losses
    settle(lossy.context(), lossy.name, now, accept=accept, by="ann", reason="it is not there")
    assert losses(lossy)[0]["decided_by"] == "ann"


def test_a_loss_that_is_kept_blocked_just_before_is_not_decided(
    lossy: World,
) -> None:
    """Between the look and the lock: what the ledger has by then counts."""
    shown = open_losses(lossy.context(), lossy.name).losses

    def keep() -> None:
        settle(lossy.context(), lossy.name, shown, accept=False, by="bob", reason="being restored")

    listen = at_statement("from pipeline .* for update", keep)
    ctx = lossy.context(database=replace(lossy.database, listen=listen))
    with pytest.raises(UsageError, match="is not what you saw any more"):
        settle(ctx, lossy.name, shown, accept=True, by="ann", reason="r")
    assert [(x["state"], x["decided_by"]) for x in losses(lossy)] == [("open", "bob")]
    assert lossy.offsets()[1] == (0, 2)


@pytest.mark.parametrize("answer", ["Accept the losses", "Keep them blocked"])
def test_a_loss_that_grows_meanwhile_is_not_decided(
    answer: str, lossy: World, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is accepted is what was shown, not what it has become."""

    def grow() -> None:
        lossy.delete_records(1, before=5)
        lossy.plan()

    run, _ = ask(lossy, run_dag, answer, first=grow)
    assert run.state == "failed"
    assert run.tasks == {**GREEN, "settle": "failed"}
    assert "no longer as they were shown" in "".join(capfd.readouterr())
    (loss,) = losses(lossy)
    assert (loss["state"], loss["until_offset"], loss["decided_by"]) == ("open", 5, None)
    assert lossy.offsets()[1] == (0, 2)


def test_an_answer_without_a_reason_decides_nothing(
    lossy: World, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
) -> None:
    """Red, and it says what to clear."""
    run, _ = ask(lossy, run_dag, "Accept the losses", " ")
    assert run.tasks == {**GREEN, "settle": "failed"}
    assert "nothing was decided" in "".join(capfd.readouterr())
    assert [loss["state"] for loss in losses(lossy)] == ["open"]


def test_the_blocked_task_says_where_to_decide(
    lossy: World, run_dag: RunDag, capfd: pytest.CaptureFixture[str]
) -> None:
    """In its error and by a button."""
    red = run_dag(lossy.name)
    assert red.state == "failed"
    assert f"trigger {lossy.name}_losses" in "".join(capfd.readouterr())
    assert red.xcom("blocked", "_link_LossesLink") == f"/dags/{lossy.name}_losses"
