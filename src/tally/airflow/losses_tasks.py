"""The tasks of a decision about lost records. Their docstrings are shown by Airflow."""

from typing import Any, Final, NamedTuple

from airflow.sdk import BaseBranchOperator, BaseOperator, Context, Param
from airflow.sdk.exceptions import AirflowFailException

from tally.airflow.connections import brief_context
from tally.airflow.failures import final, final_unless_retryable

LOOK: Final = "look"
DECIDE: Final = "decide"
SETTLE: Final = "settle"

# The XCom key of `look`; see tally.airflow.losses_work.
LOSSES_KEY: Final = "losses"
# The XCom key of `settle`: why nothing was decided.
REFUSED_KEY: Final = "refused"

ACCEPT: Final = "Accept the losses"
KEEP: Final = "Keep them blocked"

_REASON_MAX: Final = 1000
_PERSON_MAX: Final = 250


ASK: Final = "ask"
DECISIONS: Final = {
    ASK: "Ask an operator, under Required Actions",
    "accept": "Accept exactly the losses in `seen`",
    "keep": "Keep exactly the losses in `seen` blocked",
}


def decision_fields() -> dict[str, Param]:
    """What a run may be triggered with that is decided already, as the console does."""
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
            title="Seen",
            description="The losses that are decided, as they were shown; refused if one of them "
            "has changed.",
            section="A decision that is made already",
        ),
        "reason": Param(
            "",
            type="string",
            maxLength=_REASON_MAX,
            title="Reason",
            description="Why, for a decision that is made already.",
            section="A decision that is made already",
        ),
    }


def reason_field() -> dict[str, Param]:
    """The field for the reason, besides the answer."""
    return {
        "reason": Param(
            "",
            type="string",
            maxLength=_REASON_MAX,
            title="Reason",
            description="Kept in the ledger with your name. Required.",
        )
    }


class TallyLookOperator(BaseBranchOperator):
    """Look at the open losses: offsets that Kafka lost before they were counted.

    If there are none, the run ends green. Otherwise `decide` asks an operator, unless the run was
    triggered with a decision: then `settle` writes that.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def choose_branch(self, context: Context) -> list[str]:
        """Write the open losses to XCom: the decision is about exactly these."""
        from tally.airflow import losses_work  # DAG parsing must not import MySQL

        params = context["params"]
        if params["decision"] != ASK:
            context["ti"].xcom_push(key=LOSSES_KEY, value={"losses": params["seen"]})
            return [SETTLE]
        with final_unless_retryable():
            shown = losses_work.open_losses(
                brief_context(self.config, self.pipeline), self.pipeline
            )
        self.log.info(shown.text)
        context["ti"].xcom_push(key=LOSSES_KEY, value=shown.to_xcom())
        return [DECIDE] if shown.losses else []


class TallySettleOperator(BaseOperator):
    """Write the decision into the ledger, with who made it, when and why.

    After *Accept*, counting continues after the lost offsets with the next run of the minute DAG.
    The answer is refused when a loss has grown, or was decided by another operator, since it was
    shown.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def execute(self, context: Context) -> str:
        """Write the decision; returns what was done, in a sentence."""
        ti = context["ti"]
        try:
            said = self._settle(context)
        except AirflowFailException as error:
            ti.xcom_push(key=REFUSED_KEY, value=str(error))
            raise
        self.log.info(said)
        return said

    def _settle(self, context: Context) -> str:
        from tally.airflow import losses_work  # DAG parsing must not import MySQL

        ti = context["ti"]
        shown = ti.xcom_pull(task_ids=LOOK, key=LOSSES_KEY)
        decision = _decided(context)
        if not decision.reason:
            raise final(f"there is no reason, and nothing was decided. Next: {decision.again}")
        if not shown["losses"]:
            raise final(
                "`seen` names no loss, and nothing was decided. Next: trigger the DAG without "
                "parameters, which asks"
            )
        with final_unless_retryable():
            return losses_work.settle(
                brief_context(self.config, self.pipeline),
                self.pipeline,
                shown["losses"],
                accept=decision.accept,
                by=f"airflow:{ti.dag_id}:{decision.person}"[:_PERSON_MAX],
                reason=decision.reason,
            )


class _Decision(NamedTuple):
    accept: bool
    reason: str
    person: str
    again: str
    """What to do when it cannot be written."""


def _decided(context: Context) -> _Decision:
    """What was decided: by whoever has triggered the run, or answered it."""
    params = context["params"]
    if params["decision"] != ASK:
        return _Decision(
            accept=params["decision"] == "accept",
            reason=str(params["reason"]).strip(),
            person=context["dag_run"].triggering_user_name or "unknown",
            again="trigger the DAG again, with a reason",
        )
    answer = context["ti"].xcom_pull(task_ids=DECIDE)
    return _Decision(
        accept=answer["chosen_options"] == [ACCEPT],
        reason=str(answer["params_input"].get("reason") or "").strip(),
        person=(answer["responded_by_user"] or {}).get("name") or "unknown",
        again=f"clear the task {DECIDE} and answer again",
    )
