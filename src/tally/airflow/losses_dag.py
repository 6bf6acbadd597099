"""Asks an operator what to do about lost records.

These are offsets that Kafka's retention has deleted, that were lost with a truncation, or that have
no record. Until the operator decides, their partition is not counted and the runs of the minute DAG
are red; the other partitions are counted, each line exactly once.

Trigger it, open *Required Actions* of `decide`, and answer with a reason. Before accepting,
check whether the records can be restored: accepted offsets are never counted. Without open
losses the run ends green. To accept some of several losses, or to adopt a topic that was
created again, use the console, or `tally losses accept` and `tally topics adopt`.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import DAG, BaseBranchOperator, Param
from airflow.sdk import Context as TaskContext
from airflow.sdk.exceptions import AirflowFailException

from tally.airflow import policies
from tally.airflow.settling import ABANDON, ADOPT, settle_other
from tally.config.pipeline import Pipeline
from tally.errors import UsageError
from tally.formatting import REASON_MAX
from tally.model import Loss
from tally.planning.blocks import lost

if TYPE_CHECKING:  # DAG parsing must not import MySQL
    from tally.context import Context
    from tally.ledger.decisions import LossRecord

LOOK: Final = "look"
DECIDE: Final = "decide"
SETTLE: Final = "settle"

# The XCom key of `look`; see open_losses.
LOSSES_KEY: Final = "losses"
# The XCom key of `settle`: why nothing was decided.
REFUSED_KEY: Final = "refused"

ACCEPT: Final = "Accept the losses"
KEEP: Final = "Keep them blocked"

ASK: Final = "ask"
DECISIONS: Final = {
    ASK: "Ask an operator, under Required Actions",
    "accept": "Accept exactly the losses in `seen`",
    "keep": "Keep exactly the losses in `seen` blocked",
    ADOPT: "Adopt exactly the topic in `seen`, which was created again",
    ABANDON: "Abandon exactly the planned batch in `seen`",
}

# After that the run fails; an operator who sees a red run of the minute DAG triggers it again.
_ANSWER_TIMEOUT: Final = timedelta(days=7)


def losses_dag(pipeline: Pipeline, *, config: Path) -> DAG:
    """``look >> [decide >> settle]``, by hand only."""
    shown = f"ti.xcom_pull(task_ids='{LOOK}', key='{LOSSES_KEY}')"
    with policies.tally_dag(
        pipeline,
        policies.LOSSES_SUFFIX,
        __doc__,
        config=config,
        description=f"Asks an operator about records that {pipeline.name} has lost",
        dagrun_timeout=_ANSWER_TIMEOUT + 2 * policies.run_timeout(pipeline),
        params=decision_fields(),
    ) as dag:
        look = TallyLookOperator(task_id=LOOK)
        decide = HITLOperator(
            task_id=DECIDE,
            subject=f"Records of {pipeline.name} are lost",
            body=f"{{{{ {shown}['text'] }}}}\n\n"
            f"**{ACCEPT}**: counting continues after them; they are never counted.\n\n"
            f"**{KEEP}**: nothing changes, and the runs stay red, until they are restored.",
            options=[ACCEPT, KEEP],
            params={"reason": _reason_field("Kept in the ledger with your name. Required.")},
            response_timeout=_ANSWER_TIMEOUT,
            execution_timeout=None,
            retries=0,
            doc_md="Wait for an operator, who answers under *Required Actions*. No worker is "
            "occupied meanwhile.",
        )
        settle = TallySettleOperator(task_id=SETTLE, trigger_rule="none_failed_min_one_success")
        # Behind `decide`, or at once when the run was triggered with a decision.
        look >> [decide, settle]
        decide >> settle
    return dag


def decision_fields() -> dict[str, Param]:
    """What a run may be triggered with that is decided already, as the console does."""
    section = "A decision that is made already"
    return {
        "decision": Param(
            ASK,
            type="string",
            enum=list(DECISIONS),
            values_display=DECISIONS,
            title="Decision",
            description="By default the run asks. The console decides in one step.",
        ),
        "seen": Param(
            [],
            type="array",
            items={
                "type": "object",
                "properties": {
                    "lost_range_id": {"type": "integer"},
                    "topic_id": {"type": "string"},
                    "batch_id": {"type": "integer"},
                },
                "anyOf": [{"required": [key]} for key in ("lost_range_id", "topic_id", "batch_id")],
            },
            title="Seen",
            description="What is decided, as it was shown: losses, a topic, or a batch; refused if "
            "one of them has changed.",
            section=section,
        ),
        "reason": _reason_field("Why, for a decision that is made already.", section=section),
    }


def _reason_field(description: str, **schema: Any) -> Param:
    return Param(
        "", type="string", maxLength=REASON_MAX, title="Reason", description=description, **schema
    )


class TallyLookOperator(policies.TallyOperator, BaseBranchOperator):
    """Look at the open losses: offsets that Kafka lost before they were counted.

    If there are none, the run ends green. Otherwise `decide` asks an operator, unless the run was
    triggered with a decision: then `settle` writes that.
    """

    @policies.final_unless_retryable()
    def choose_branch(self, context: TaskContext) -> list[str]:
        """Write the open losses to XCom: the decision is about exactly these."""
        params = context["params"]
        if params["decision"] != ASK:
            context["ti"].xcom_push(key=LOSSES_KEY, value={"losses": params["seen"]})
            return [SETTLE]
        shown = open_losses(self.open_context(), self.pipeline)
        self.log.info(shown["text"])
        context["ti"].xcom_push(key=LOSSES_KEY, value=shown)
        return [DECIDE] if shown["losses"] else []


class TallySettleOperator(policies.TallyOperator):
    """Write the decision into the ledger, with who made it, when and why.

    After *Accept*, counting continues after the lost offsets with the next run of the minute DAG.
    The answer is refused when a loss has grown, or was decided by another operator, since it was
    shown.
    """

    def execute(self, context: TaskContext) -> str:
        """Write the decision; returns what was done, in a sentence."""
        try:
            done = self._settle(context)
        except AirflowFailException as error:
            context["ti"].xcom_push(key=REFUSED_KEY, value=str(error))
            raise
        self.log.info(done)
        return done

    @policies.final_unless_retryable()
    def _settle(self, context: TaskContext) -> str:
        params, ti = context["params"], context["ti"]
        if params["decision"] != ASK:  # by the user who has triggered the run
            accept, reason = params["decision"] == "accept", params["reason"]
            user = context["dag_run"].triggering_user_name
            again = "trigger the DAG again, with a reason"
        else:
            answer = ti.xcom_pull(task_ids=DECIDE)
            accept = answer["chosen_options"] == [ACCEPT]
            reason = answer["params_input"].get("reason") or ""
            user = (answer["responded_by_user"] or {}).get("name")
            again = f"clear the task {DECIDE} and answer again"
        if not (reason := reason.strip()):
            raise policies.final(f"there is no reason, and nothing was decided. Next: {again}")
        shown = ti.xcom_pull(task_ids=LOOK, key=LOSSES_KEY)["losses"]
        if not shown:
            raise policies.final(
                "`seen` names nothing, and nothing was decided. Next: trigger the DAG without "
                "parameters, which asks"
            )
        ctx = self.open_context(policies.requester_of(context, user))
        if params["decision"] in {ADOPT, ABANDON}:
            if len(shown) != 1:
                raise policies.final(
                    "`seen` names several, and nothing was decided. Next: one after the other"
                )
            return settle_other(ctx, self.pipeline, params["decision"], shown[0], reason)
        return settle(ctx, self.pipeline, shown, accept=accept, reason=reason)


# --- what the ledger has, and what is written there


def open_losses(ctx: "Context", pipeline: str) -> dict[str, Any]:
    """The losses that wait for a decision, and a text in Markdown for the log and the question.

    The decision is refused if one of these losses has changed.
    """
    from tally.maintenance.decisions import losses

    found = losses(ctx, pipeline, only_open=True).losses
    text = _question(pipeline, found) if found else f"{pipeline} has no open losses"
    return {"losses": [as_seen(loss) for loss in found], "text": text}


def settle(
    ctx: "Context",
    pipeline: str,
    shown: Sequence[Mapping[str, Any]],
    *,
    accept: bool,
    reason: str,
) -> str:
    """Accept the losses exactly as they were shown, or note that they stay open.

    The ledger records the requester of the context as who has decided. It is idempotent: the same
    answer can be given again, and is written once.

    Returns:
        What was done, in a sentence.

    Raises:
        UsageError: One of them is no longer as it was shown. Nothing is changed.
    """
    from tally.maintenance.decisions import LossesView, decide_losses

    seen, by = _known(ctx, pipeline, shown), ctx.requester.name
    try:
        _check_shown(pipeline, seen, shown)
        seen_now = LossesView(pipeline=pipeline, losses=tuple(seen))
        decide_losses(ctx, seen_now, accept=accept, reason=reason)
    except UsageError:
        # An earlier try may have decided exactly these so, with a COMMIT that was not answered.
        seen = _known(ctx, pipeline, shown)
        state = {"state": "accepted" if accept else "open", "decided_at": None}
        ours = all((loss.decided_by, loss.reason) == (by, reason) for loss in seen)
        now = [{**as_seen(loss), "decided_at": None} for loss in seen]
        if not ours or now != [{**loss, **state} for loss in shown]:
            raise
    ranges = ", ".join(str(loss.range) for loss in seen)
    if accept:
        return f"accepted by {by}: {ranges}; counting continues with the next run of {pipeline}"
    return f"left open by {by}: {ranges}; runs of {pipeline} stay red"


def _check_shown(
    pipeline: str, seen: "Sequence[LossRecord]", shown: Sequence[Mapping[str, Any]]
) -> None:
    if [as_seen(loss) for loss in seen] != list(shown):
        raise UsageError(
            f"the losses of {pipeline} are no longer as they were shown: one has grown, or "
            "another operator has decided it; nothing was changed",
            next_step="trigger the DAG again: it shows them as they are now",
        )


def _known(ctx: "Context", pipeline: str, shown: Sequence[Mapping[str, Any]]) -> "list[LossRecord]":
    """The losses as the ledger has them now; a loss that it no longer has is left out."""
    from tally.maintenance.decisions import losses

    found = {loss.lost_range_id: loss for loss in losses(ctx, pipeline).losses}
    numbers = [loss["lost_range_id"] for loss in shown]
    return [found[number] for number in numbers if number in found]


def as_seen(loss: "LossRecord") -> dict[str, Any]:
    """A loss as a decision names it."""
    return {
        "lost_range_id": loss.lost_range_id,
        "range": str(loss.range),
        "cause": str(loss.cause),
        "state": loss.state,
        "decided_at": loss.decided_at and loss.decided_at.isoformat(),
    }


def _question(pipeline: str, found: "Sequence[LossRecord]") -> str:
    rows = [
        f"| {loss.range.place} | {loss.range.offsets:,} "
        f"| {lost(pipeline, Loss(cause=loss.cause, range=loss.range)).detail} "
        f"| {loss.detected_at:%Y-%m-%d %H:%M:%S} |"
        for loss in found
    ]
    head = ["| partition | offsets | what happened | seen (UTC) |", "|---|---|---|---|"]
    answered = [
        f"\n{loss.range} was left open by {loss.decided_by}: {loss.reason}"
        for loss in found
        if loss.decided_by
    ]
    return "\n".join([*head, *rows, *answered])
