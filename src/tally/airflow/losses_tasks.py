"""The tasks of a decision about lost records. Their docstrings are shown by Airflow."""

from typing import Any, Final

from airflow.sdk import BaseBranchOperator, BaseOperator, Context, Param

from tally.airflow.connections import brief_context
from tally.airflow.failures import final, final_unless_retryable

LOOK: Final = "look"
DECIDE: Final = "decide"
SETTLE: Final = "settle"

# The XCom key of `look`; see tally.airflow.losses_work.
LOSSES_KEY: Final = "losses"

ACCEPT: Final = "Accept the losses"
KEEP: Final = "Keep them blocked"

_REASON_MAX: Final = 1000
_PERSON_MAX: Final = 250


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

    If there are none, the run ends green. Otherwise `decide` asks an operator.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def choose_branch(self, context: Context) -> list[str]:
        """Write the open losses to XCom: the decision is about exactly these."""
        from tally.airflow import losses_work  # DAG parsing must not import MySQL

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
        """Write the decision; returns the sentence that goes to XCom."""
        from tally.airflow import losses_work  # DAG parsing must not import MySQL

        ti = context["ti"]
        answer = ti.xcom_pull(task_ids=DECIDE)
        shown = ti.xcom_pull(task_ids=LOOK, key=LOSSES_KEY)
        reason = str(answer["params_input"].get("reason") or "").strip()
        if not reason:
            raise final(
                "the answer has no reason, and nothing was decided. Next: clear the task "
                f"{DECIDE} and answer again"
            )
        person = (answer["responded_by_user"] or {}).get("name") or "unknown"
        with final_unless_retryable():
            said = losses_work.settle(
                brief_context(self.config, self.pipeline),
                self.pipeline,
                shown["losses"],
                accept=answer["chosen_options"] == [ACCEPT],
                by=f"airflow:{ti.dag_id}:{person}"[:_PERSON_MAX],
                reason=reason,
            )
        self.log.info(said)
        return said
