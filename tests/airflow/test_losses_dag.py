"""The losses DAG: its tasks, and one run by Airflow with an operator who answers."""

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from airflow.utils.session import create_session
from sqlalchemy import select

from tally.airflow.losses_dag import ACCEPT, KEEP, open_losses, settle
from tally.airflow.settling import ABANDON, ADOPT, adoption_as_seen
from tally.context import Context
from tally.errors import UsageError
from tally.ledger.batches import Requester
from tally.maintenance.decisions import adoption_of
from tally.mysql.errors import CommitUnansweredError
from tests.airflow.dag_run import AIRFLOW, RunDag
from tests.airflow.tasks import Tasks
from tests.cli.test_decisions import create_again
from tests.minute.steps import disturbed, proxied
from tests.proxy import Cut
from tests.waiting import wait_until
from tests.world import World

pytestmark = [*AIRFLOW, pytest.mark.stack]

INFO = "2017-07-30 14:09:09 INFO all is well"
LOCKING = "from pipeline .* for update"


@pytest.fixture
def lossy(world: World) -> World:
    """Two offsets of partition 1 went before they were counted, and a plan has seen it."""
    world.produce([INFO] * 2, 1)
    world.minute()
    world.produce([INFO] * 3, 1)
    world.delete_records(1, before=4)
    assert world.plan().blocks
    return world


def decision(world: World) -> tuple[Any, ...]:
    (loss,) = world.rows(
        "select l.* from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s",
        (world.name,),
    )
    assert (loss["decided_at"] is None) == (loss["decided_by"] is None)
    return loss["state"], loss["decided_by"], loss["reason"]


def seen(world: World) -> list[dict[str, Any]]:
    losses: list[dict[str, Any]] = open_losses(world.context(), world.name)["losses"]
    return losses


def open_question(dag_id: str) -> Any:
    """The run, the subject and the body of what is asked now; None when nothing is."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance

    asked = select(TaskInstance.run_id, HITLDetail.subject, HITLDetail.body).join(
        TaskInstance, TaskInstance.id == HITLDetail.ti_id
    )
    mine = (TaskInstance.dag_id == dag_id, TaskInstance.state == "awaiting_input")
    with create_session() as session:
        return session.execute(asked.where(*mine)).first()


def answering(dag_id: str, answer: str, reason: str, asked: list[Any]) -> threading.Thread:
    """Ann, who answers with the handler of Airflow's page. An import in a thread may warn."""
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail

    ann: Any = SimpleNamespace(get_id=lambda: "ann", get_name=lambda: "ann")
    payload = UpdateHITLDetailPayload(chosen_options=[answer], params_input={"reason": reason})

    def answer_it() -> None:
        asked.append(question := wait_until(partial(open_question, dag_id), pause_s=0.2))
        with create_session() as session:
            update_hitl_detail(dag_id, question.run_id, "decide", payload, ann, session)

    return threading.Thread(target=answer_it)


def test_after_an_accepted_loss_counting_continues(lossy: World, run_dag: RunDag) -> None:
    """The ledger has the answer, operator, time and reason; the next run counts behind it."""
    dag_id, asked = f"{lossy.name}_losses", list[Any]()
    (ann := answering(dag_id, ACCEPT, "retention was too short", asked)).start()
    run = run_dag(dag_id)
    ann.join()
    assert run.state == "success"
    assert run.tasks == {"look": "success", "decide": "success", "settle": "success"}
    (question,) = asked
    assert question.subject == f"Records of {lossy.name} are lost"
    assert f"{lossy.topic}/1 | 2 | [2, 4) was never counted" in question.body
    assert decision(lossy) == ("accepted", f"airflow:{dag_id}:ann", "retention was too short")
    assert lossy.settings.mysql.password.get_secret_value() not in run.stored()
    lossy.minute()
    assert lossy.offsets()[1] == (0, 5)
    assert lossy.audit().holds
    # Without open losses nobody is asked.
    again = Tasks(lossy, "_losses")
    assert again.run("look") == []
    assert again.xcoms["look", "losses"]["text"] == f"{lossy.name} has no open losses"


def answered(world: World, answer: str, reason: str) -> Tasks:
    run = Tasks(world, "_losses")
    assert run.run("look") == ["decide"]
    run.xcoms["decide", "return_value"] = {
        "chosen_options": [answer],
        "params_input": {"reason": reason},
        "responded_by_user": {"name": "ann"},
    }
    return run


@pytest.mark.parametrize(("decided", "state"), [("accept", "accepted"), ("keep", "open")])
def test_a_decision_may_come_with_the_trigger(decided: str, state: str, lossy: World) -> None:
    """Then nobody is asked: the console has shown the losses, and asked for the reason."""
    conf = {"decision": decided, "seen": seen(lossy), "reason": " the backup is gone "}
    run = Tasks(lossy, "_losses", conf)
    assert run.run("look") == ["settle"]
    words = "accepted by" if state == "accepted" else "left open by"
    assert run.run("settle").startswith(words)
    assert decision(lossy) == (state, f"airflow:{lossy.name}_losses:ann", "the backup is gone")
    assert bool(lossy.plan().blocks) == (decided == "keep")


def test_a_decision_that_is_not_whole_decides_nothing(lossy: World) -> None:
    whole = {"decision": "accept", "seen": seen(lossy), "reason": "r"}
    grown = "no longer as they were shown"
    for changed, said in (
        ({"reason": "  "}, "there is no reason"),
        ({"seen": []}, "`seen` names nothing"),
        ({"seen": [{"lost_range_id": 1}]}, grown),
        ({"seen": [{**seen(lossy)[0], "range": f"{lossy.topic}/1 [2, 3)"}]}, grown),
    ):
        run = Tasks(lossy, "_losses", {**whole, **changed})
        run.run("look")
        with pytest.raises(AirflowFailException, match=said):
            run.run("settle")
        assert said in run.xcoms["settle", "refused"]
    for seen_of_no_page in (["x"], [{"lost_range_id": [1]}], [{}]):
        with pytest.raises(ParamValidationError):  # Airflow starts no run
            Tasks(lossy, "_losses", {**whole, "seen": seen_of_no_page})
    unexplained = answered(lossy, ACCEPT, " ")
    with pytest.raises(AirflowFailException, match="nothing was decided"):
        unexplained.run("settle")
    assert decision(lossy) == ("open", None, None)


def test_a_loss_that_is_kept_blocked_keeps_the_answer(lossy: World) -> None:
    reason = "the backup is being restored"
    answered(lossy, KEEP, reason).run("settle")
    assert decision(lossy) == ("open", f"airflow:{lossy.name}_losses:ann", reason)
    assert lossy.plan().blocks
    asked = answered(lossy, KEEP, "still").xcoms["look", "losses"]["text"]
    assert "was left open by" in asked
    assert reason in asked
    assert lossy.audit().holds


def deciding(world: World, **fixed: Any) -> Callable[..., str]:
    """Gives an answer about the losses as they are shown now."""
    shown = seen(world)

    def give(ctx: Context, **changed: Any) -> str:
        answer = {**fixed, **changed}
        requester = Requester(name=answer.pop("by"), version="1")
        return settle(replace(ctx, requester=requester), world.name, shown, **answer)

    return give


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("accept", [True, False])
def test_an_answer_in_doubt_is_given_again(lossy: World, accept: bool, cut: Cut) -> None:
    """As the task's retry does: whether it was applied or not, the outcome is the same."""
    give = deciding(lossy, accept=accept, by="ann", reason="r")
    with proxied(lossy, cut) as (_, broken), pytest.raises(CommitUnansweredError):
        give(broken.context())
    words = "accepted" if accept else "left open"
    assert give(lossy.context()).startswith(f"{words} by ann: {lossy.topic}/1 [2, 4); ")
    assert decision(lossy) == ("accepted" if accept else "open", "ann", "r")
    assert lossy.offsets()[1] == (0, 4 if accept else 2)
    assert lossy.audit().holds


def test_an_answer_that_is_applied_while_it_is_given_again_holds_once(lossy: World) -> None:
    """The server applies the earlier try's COMMIT after this try has read and before it locks."""
    give, said = deciding(lossy, accept=True, by="ann", reason="r"), list[str]()
    late = disturbed(lossy, LOCKING, lambda: said.append(give(lossy.context())))
    said.append(give(late.context()))
    assert said[0] == said[1]
    assert said[0].startswith(f"accepted by ann: {lossy.topic}/1 [2, 4); ")
    assert decision(lossy) == ("accepted", "ann", "r")
    assert lossy.offsets()[1] == (0, 4)
    assert lossy.audit().holds


def test_nobody_decides_over_another_operators_answer_unread(lossy: World) -> None:
    """Bob is having the backup restored, which an older page does not show."""
    ctx = lossy.context()
    older = [deciding(lossy, accept=accept, by="ann", reason="gone") for accept in (True, False)]
    deciding(lossy, accept=False, by="bob", reason="being restored")(ctx)
    for give in older:
        with pytest.raises(UsageError, match="another operator has decided it"):
            give(ctx)
    assert decision(lossy) == ("open", "bob", "being restored")
    mine = {"accept": True, "by": "ann", "reason": "gone"}
    (give := deciding(lossy, **mine))(ctx)
    for other in ({"by": "bob"}, {"reason": "another"}, {"accept": False}):
        with pytest.raises(UsageError, match="another operator has decided it"):
            give(ctx, **{**mine, **other})
    assert decision(lossy) == ("accepted", "ann", "gone")


def test_a_loss_that_is_kept_blocked_just_before_is_not_decided(lossy: World) -> None:
    """Between the look and the lock: what the ledger has by then counts."""
    keep = deciding(lossy, accept=False, by="bob", reason="being restored")
    late = disturbed(lossy, LOCKING, lambda: keep(lossy.context()))
    with pytest.raises(UsageError, match="is not what you saw any more"):
        deciding(lossy, accept=True, by="ann", reason="r")(late.context())
    assert decision(lossy) == ("open", "bob", "being restored")
    assert lossy.offsets()[1] == (0, 2)


def other_decision(world: World, what: str, shown: dict[str, Any]) -> str:
    """What the console hands on is done, and done once: the task may be tried again."""
    conf = {"decision": what, "seen": [shown], "reason": "ticket 5"}
    run = Tasks(world, "_losses", conf)
    assert run.run("look") == ["settle"]
    done = str(run.run("settle"))
    assert run.run("settle") == done
    return done


def test_a_topic_that_was_created_again_is_adopted_as_it_was_shown(world: World) -> None:
    """Another one that was created since is not; nor is anything adopted that is not shown."""
    world.produce([INFO] * 2)
    world.minute(world.reader)
    create_again(world, 3)
    shown = adoption_as_seen(adoption_of(world.context(), world.name, world.topic))
    assert "is followed under its id" in other_decision(world, ADOPT, shown)
    world.minute(world.reader)
    assert (world.offsets()[0], world.audit().holds) == ((0, 3), True)
    wrong = {**shown, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "offsets": [[9, 0]]}
    create_again(world, 1)
    with pytest.raises(ParamValidationError):
        Tasks(world, "_losses", {"decision": ADOPT, "seen": [{"topic": "x"}], "reason": "r"})
    other_decision(world, ADOPT, wrong)
    assert world.plan().blocks  # Kafka has yet another one


def test_of_several_that_are_named_none_is_decided(world: World) -> None:
    """One that is left out would look decided."""
    conf = {"decision": ABANDON, "seen": [{"batch_id": 1}, {"batch_id": 2}], "reason": "ticket 5"}
    run = Tasks(world, "_losses", conf)
    run.run("look")
    with pytest.raises(AirflowFailException, match="names several, and nothing was decided"):
        run.run("settle")


def test_an_open_batch_is_abandoned(world: World) -> None:
    """Its offsets are read again; that of another pipeline is left alone."""
    batch = world.planned([INFO] * 2)
    assert "was abandoned by" in other_decision(world, ABANDON, {"batch_id": batch.batch_id})
    (row,) = world.rows("select * from batch where batch_id = %s", (batch.batch_id,))
    assert (row["state"], row["reason"]) == ("abandoned", "ticket 5")
    (folder := world.config.parent / "other").mkdir()
    other = World.create(world.stack, folder)
    foreign = other.planned([INFO])
    with pytest.raises(AirflowFailException, match="has no batch"):
        other_decision(world, ABANDON, {"batch_id": foreign.batch_id})
    again = world.planned().segments
    assert [one.range for one in again] == [one.range for one in batch.segments]
