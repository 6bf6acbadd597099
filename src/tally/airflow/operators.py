"""The light tasks: plan, blocked, audit. Their docstrings are shown by Airflow."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from airflow.sdk import BaseBranchOperator, BaseOperator, Context

from tally.airflow.connections import brief_context, connected_context, connected_settings
from tally.airflow.failures import final, final_unless_retryable
from tally.airflow.links import LossesLink
from tally.airflow.timeouts import AUDIT_TIMEOUT, bounded

PLAN: Final = "plan"
COUNT: Final = "count"
BLOCKED: Final = "blocked"
AUDIT: Final = "audit"

# What `plan` hands on; see tally.airflow.work.PlanNote.
NOTE_KEY: Final = "batch"

_FINDINGS_SHOWN: Final = 20


def from_note(field: str) -> str:
    """A template for a field of what ``plan`` handed on."""
    return f"{{{{ ti.xcom_pull(task_ids='{PLAN}', key='{NOTE_KEY}')['{field}'] }}}}"


class TallyPlanOperator(BaseBranchOperator):
    """Fix the offset ranges of the next batch, before any data is read.

    An open batch is resumed, with the ranges it was planned with. Nothing new: the rest of
    the run is skipped and it ends green. Partitions that Kafka and the ledger disagree on are left
    out and make `blocked` run.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def choose_branch(self, context: Context) -> Iterable[str]:
        """Plan, hand the plan on, and name the tasks that have something to do."""
        from tally.airflow import work  # Kafka and MySQL stay out of parsing

        ti = context["ti"]
        with final_unless_retryable():
            asked = brief_context(self.config, self.pipeline)
            note = work.plan(asked, self.pipeline, ti.dag_id, ti.run_id)
        self.log.info(note.text)
        ti.xcom_push(key=NOTE_KEY, value=note.to_xcom())
        wanted = {COUNT: note.batch_id is not None, BLOCKED: note.blocked is not None}
        return [task_id for task_id, is_wanted in wanted.items() if is_wanted]


class TallyBlockedOperator(BaseOperator):
    """Make the run red while partitions wait for an operator's decision.

    The healthy partitions are counted all the same. The error names each blocked partition, what
    the ledger and Kafka say of it, and the command that decides. A loss may be decided in Airflow,
    too: `<pipeline>_losses` asks for it.
    """

    template_fields: Sequence[str] = ("message",)
    operator_extra_links = (LossesLink(),)

    def __init__(self, *, message: str, losses_dag: str, **options: Any) -> None:
        super().__init__(**options)
        self.message = message
        self.losses_dag = losses_dag

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        """Fail, without another try."""
        raise final(
            f"{self.message} A loss may also be decided in Airflow: trigger {self.losses_dag}"
        )


class TallyAuditOperator(BaseOperator):
    """Prove that the result is what the ledger says was counted, once each.

    Red when anything does not add up, with what and where. A finding is never repaired here.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def execute(self, context: Context) -> dict[str, int]:  # noqa: ARG002 - Airflow's signature
        """Check the ledger; what was looked at goes to XCom."""
        from tally.app.audit import AuditRequest, audit  # MySQL stays out of parsing

        with final_unless_retryable():
            settings = bounded(connected_settings(Path(self.config)), AUDIT_TIMEOUT)
            report = audit(connected_context(settings), AuditRequest(pipeline=self.pipeline))
        looked_at = {
            "partitions": report.partitions,
            "segments": report.segments,
            "records": report.records,
            "minutes": report.minutes,
            "matched": report.matched,
            "findings": len(report.findings),
        }
        self.log.info("audit of %s: %s", self.pipeline, looked_at)
        if not report.holds:
            shown = "; ".join(
                f"{finding.check}: {finding.where}: {finding.detail}"
                for finding in report.findings[:_FINDINGS_SHOWN]
            )
            raise final(
                f"pipeline {self.pipeline}: {len(report.findings)} findings: {shown}. "
                f"Next: tally audit {self.pipeline}"
            )
        return looked_at
